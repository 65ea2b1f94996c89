"""The command in everybody's hands: each does its part, and is told what it may not do instead of being shown it."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from outbox_core.cli.failures import ExitCode
from tests.integration.cli.command import Result, invoke
from tests.integration.cli.sql import add, fetch
from tests.integration.roles.cast import TABLE, Cast

pytestmark = [pytest.mark.asyncio, pytest.mark.store]
CONTENT = "canary"
WHY = ("--yes", "--reason", "the consumer is mended", "--actor", "ada")


async def run(cast: Cast, part: str, *args: str) -> Result:
    """The command as this part of the system; it has an event loop of its own."""
    result = await asyncio.to_thread(invoke, *args, "-t", TABLE, database=cast.dsn(part))
    assert "Traceback" not in result.err
    return result


async def each_ends(cast: Cast, part: str, code: ExitCode, *commands: tuple[str, ...]) -> None:
    for command in commands:
        result = await run(cast, part, *command)
        assert result.code == code, (part, command, result.err)
        assert CONTENT not in result.out + result.err, command
        assert code != ExitCode.PERMISSION or "[STORAGE.PERMISSION]" in result.err


def dead_ones(cast: Cast) -> list[UUID]:
    dead = "SELECT event_id FROM shop.orders_outbox WHERE dead_at IS NOT NULL ORDER BY sequence"
    return [row[0] for row in fetch(cast.admin, dead)]


async def test_the_producer_and_the_migrator(cast: Cast) -> None:
    await each_ends(cast, "producer", ExitCode.DONE, ("enqueue", "shop.order.placed.v1", '{"a": 1}'))
    add(cast.admin, "dead", 2)
    refused = [
        ("status",),
        ("pending",),
        ("dead", "list"),
        ("dead", "replay", "--all", *WHY),
        ("clean", *WHY),
    ]
    await each_ends(cast, "producer", ExitCode.PERMISSION, *refused)
    await each_ends(cast, "migrator", ExitCode.DONE, ("schema", "verify"), ("schema", "upgrade"))


async def test_the_viewer_sees_everything_but_content_and_changes_nothing(cast: Cast) -> None:
    add(cast.admin, "dead", 2)
    add(cast.admin, "pending", 2)
    add(cast.admin, "published", 2, age=8 * 86400)
    one = str(dead_ones(cast)[0])
    seen = [("status",), ("pending",), ("dead", "list"), ("dead", "show", one), ("dead", "history")]
    await each_ends(cast, "viewer", ExitCode.DONE, *seen)
    refused = [
        ("pending", "--payload"),
        ("dead", "show", one, "--payload"),
        ("dead", "replay", "--all", *WHY),
        ("dead", "discard", "--event-id", one, *WHY),
        ("enqueue", "shop.order.placed.v1"),
        ("clean", *WHY),
    ]
    await each_ends(cast, "viewer", ExitCode.PERMISSION, *refused)
    assert len(dead_ones(cast)) == 2
    for part in ("viewer", "operator", "relay", "producer"):
        doctor = await run(cast, part, "doctor")
        assert doctor.code in (ExitCode.DONE, ExitCode.WARNINGS, ExitCode.FINDINGS), doctor.err
        assert CONTENT not in doctor.out + doctor.err


async def test_the_operator_replays_discards_and_cleans_and_leaves_a_record(cast: Cast) -> None:
    add(cast.admin, "dead", 3)
    add(cast.admin, "published", 2, age=8 * 86400)
    one, *_ = dead_ones(cast)
    done = [
        ("dead", "list"),
        ("dead", "replay", "--event-id", str(one), *WHY),
        ("dead", "discard", "--all", *WHY),
        ("clean", *WHY),
    ]
    await each_ends(cast, "operator", ExitCode.DONE, *done)
    actions = fetch(
        cast.admin, "SELECT action, actor, changed FROM shop.orders_outbox_audit ORDER BY started_at"
    )
    assert actions == [("replay", "ada", 1), ("discard", "ada", 2), ("clean", "ada", 2)]
    refused = [("enqueue", "shop.order.placed.v1"), ("dead", "show", str(one), "--payload")]
    await each_ends(cast, "operator", ExitCode.PERMISSION, *refused)
