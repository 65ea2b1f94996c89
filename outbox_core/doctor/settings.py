"""Settings: what the environment says, and what it fails to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from outbox_core.config import Settings, unknown_variables
from outbox_core.doctor.finding import Finding, Severity
from outbox_core.errors import InvalidSettings

if TYPE_CHECKING:
    from outbox_core.table import TableName


def read_settings(environ: Mapping[str, str]) -> tuple[Settings, list[Finding]]:
    """The settings, or defaults when they cannot be read, and everything that is wrong with them."""
    known = {name: text for name, text in environ.items() if not _is_unknown(name, environ)}
    findings = [
        Finding(
            "settings",
            Severity.WARNING,
            str(unknown),
            "What was meant to be set has its default instead.",
            (f"unset {unknown.name}",) if unknown.nearest is None
            else (f'export {unknown.nearest}="${unknown.name}"; unset {unknown.name}',),
        )
        for unknown in unknown_variables(environ)
    ]  # fmt: skip
    try:
        return Settings.from_env(known), findings
    except InvalidSettings as error:
        return Settings(), [
            *findings,
            *(
                Finding(
                    "settings",
                    Severity.ERROR,
                    problem,
                    "Nothing that reads its settings from the environment starts with this value.",
                    (f"export {problem.partition('=')[0]}=…",),
                )
                for problem in error.problems
            ),
        ]


def check_settings(
    settings: Settings, tables: Sequence[TableName], *, has_destination: bool
) -> list[Finding]:
    """What a relay with these settings would miss."""
    findings: list[Finding] = []
    if not tables:
        findings.append(
            Finding(
                "settings",
                Severity.WARNING,
                "no table is named",
                "A relay without tables delivers nothing, and nothing can be said about any table here.",
                ("export OUTBOX_RELAY_TABLES=schema.name",),
            )
        )
    if not settings.relay_enabled:
        findings.append(
            Finding(
                "settings",
                Severity.WARNING,
                "the relay is switched off (OUTBOX_RELAY_ENABLED=false)",
                "With these settings nothing is delivered.",
                ("export OUTBOX_RELAY_ENABLED=true",),
            )
        )
    if not has_destination:
        findings.append(
            Finding(
                "settings",
                Severity.NOTE,
                "no destination is named (OUTBOX_RELAY_TO)",
                "The broker was not looked at. A relay inside an application is given its dispatcher in code.",
                ("export OUTBOX_RELAY_TO=kafka://host:9092",),
            )
        )
    return findings


def _is_unknown(name: str, environ: Mapping[str, str]) -> bool:
    return bool(unknown_variables({name: environ[name]}))
