"""Settings as findings, and findings as text."""

from __future__ import annotations

import pytest

from outbox_core.doctor import Finding, Severity, diagnose, worst
from outbox_core.table import TableName
from tests.integration.doctor.ward import TABLE, Ward

pytestmark = pytest.mark.asyncio


async def settings_findings(environ: dict[str, str]) -> list[Finding]:
    return [finding for finding in await diagnose(environ) if finding.check == "settings"]


async def test_wrong_values_and_unknown_names_are_findings() -> None:
    found = await settings_findings(
        {
            "OUTBOX_RELAY_BATCH_SIZE": "many",
            "OUTBOX_RELAY_LOCK_TTL": "soon",
            "OUTBOX_RELAY_BATCHSIZE": "7",
            "OUTBOX_RELAY_TABLES": "orders_outbox",
        }
    )
    errors = [finding.title for finding in found if finding.severity is Severity.ERROR]
    assert len(errors) == 2
    assert errors[0].startswith("OUTBOX_RELAY_LOCK_TTL=soon") or errors[0].startswith(
        "OUTBOX_RELAY_BATCH_SIZE=many"
    )
    (unknown,) = [finding for finding in found if "OUTBOX_RELAY_BATCHSIZE" in finding.title]
    assert (unknown.severity, "did you mean OUTBOX_RELAY_BATCH_SIZE" in unknown.title) == (
        Severity.WARNING,
        True,
    )


async def test_one_wrong_value_hides_none_of_the_others(ward: Ward) -> None:
    """Neither database nor table nor destination is said to be missing, and all of them are looked at."""
    found = await diagnose(
        {
            "OUTBOX_DATABASE_URL": ward.dsn,
            "OUTBOX_RELAY_TABLES": TABLE,
            "OUTBOX_RELAY_TO": "nats://127.0.0.1:1",
            "OUTBOX_RELAY_BATCH_SIZE": "many",
        },
        timeout=5.0,
    )
    assert [finding.title.partition(":")[0] for finding in found if finding.check == "settings"] == [
        "OUTBOX_RELAY_BATCH_SIZE=many"
    ]
    assert [str(finding.table) for finding in found if finding.check == "schema"] == [TABLE]
    (broker,) = [finding for finding in found if finding.check == "broker"]
    assert "127.0.0.1:1" in broker.title


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OUTBOX_DATABASE_URL", "postgresql://ada:canary@db:54x/shop"),
        ("OUTBOX_RELAY_TABLES", "Orders"),
        ("OUTBOX_RELAY_TO", "nats://ada:canary@@"),
    ],
)
async def test_what_cannot_be_read_is_not_said_to_be_missing(ward: Ward, name: str, value: str) -> None:
    good = {
        "OUTBOX_DATABASE_URL": ward.dsn,
        "OUTBOX_RELAY_TABLES": TABLE,
        "OUTBOX_RELAY_TO": "nats://127.0.0.1:1",
    }
    found = await diagnose(good | {name: value}, timeout=5.0)
    wrong = [finding for finding in found if finding.check == "settings"]
    assert [(each.severity, each.title.partition("=")[0]) for each in wrong] == [(Severity.ERROR, name)]
    assert wrong[0].run == (f"export {name}=…",)
    text = "\n".join(map(str, found))
    assert " is named" not in text
    assert "canary" not in text
    looked_at = {finding.check for finding in found if finding.severity is Severity.OK}
    assert ("version" in looked_at) == (name != "OUTBOX_DATABASE_URL")
    assert ("indexes" in looked_at) == (name == "OUTBOX_RELAY_TO")


async def test_complete_settings_are_good() -> None:
    found = await settings_findings(
        {"OUTBOX_RELAY_TABLES": "orders_outbox", "OUTBOX_RELAY_TO": "nats://127.0.0.1:1"}
    )
    assert [finding.severity for finding in found] == [Severity.OK]


async def test_what_is_missing_or_off() -> None:
    found = await settings_findings({"OUTBOX_RELAY_ENABLED": "false"})
    assert [finding.severity for finding in found] == [Severity.WARNING, Severity.WARNING, Severity.NOTE]


async def test_findings_as_text() -> None:
    finding = Finding(
        "leader",
        Severity.ERROR,
        "nobody leads",
        "Nobody delivers.",
        ("a", "b\nc"),
        TableName("shop", "o_outbox"),
    )
    assert str(finding) == (
        "error: leader: shop.o_outbox: nobody leads\n    Nobody delivers.\n    > a\n    > b\n    > c"
    )
    assert worst([]) is Severity.OK
    assert worst([finding, Finding("x", Severity.NOTE, "t")]) is Severity.ERROR
