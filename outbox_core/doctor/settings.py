"""Checks the settings: what the environment says, and what it fails to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outbox_core.config import Settings, unknown_variables
from outbox_core.finding import Finding, Severity

if TYPE_CHECKING:
    from outbox_core.table import TableName


@dataclass(frozen=True, slots=True)
class Reading:
    """The settings as they were read: defaults stand in for what could not be read, whose variables are ``unread``."""

    settings: Settings
    unread: frozenset[str] = frozenset()
    findings: tuple[Finding, ...] = ()


def read_settings(environ: Mapping[str, str]) -> Reading:
    """The settings and everything that is wrong with them; what is wrong with one leaves the others as they are."""
    unknown = [
        Finding(
            "settings",
            Severity.WARNING,
            str(each),
            "What was meant to be set has its default instead.",
            (f"unset {each.name}",) if each.nearest is None
            else (f'export {each.nearest}="${each.name}"; unset {each.name}',),
        )
        for each in unknown_variables(environ)
    ]  # fmt: skip
    settings, problems = Settings.read(environ)
    wrong = [
        Finding(
            "settings",
            Severity.ERROR,
            problem.text,
            "Nothing that reads its settings from the environment starts with this value.",
            tuple(f"export {name}=…" for name in problem.variables),
        )
        for problem in problems
    ]
    unread = frozenset(name for problem in problems for name in problem.variables)
    return Reading(settings, unread, (*unknown, *wrong))


def check_settings(reading: Reading, tables: Sequence[TableName], *, has_destination: bool) -> list[Finding]:
    """Check for what a relay with these settings would miss. A setting that cannot be read is not missing."""
    findings: list[Finding] = []
    if not tables and "OUTBOX_RELAY_TABLES" not in reading.unread:
        findings.append(
            Finding(
                "settings",
                Severity.WARNING,
                "no table is named",
                "A relay without tables delivers nothing, and nothing can be said about any table here.",
                ("export OUTBOX_RELAY_TABLES=schema.name",),
            )
        )
    if not reading.settings.relay_enabled:
        findings.append(
            Finding(
                "settings",
                Severity.WARNING,
                "the relay is switched off (OUTBOX_RELAY_ENABLED=false)",
                "With these settings nothing is delivered.",
                ("export OUTBOX_RELAY_ENABLED=true",),
            )
        )
    if not has_destination and "OUTBOX_RELAY_TO" not in reading.unread:
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
