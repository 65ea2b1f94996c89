"""Rows that every claim comes upon and cannot read, or tell the place of: the others arrive all the same."""

from __future__ import annotations

import pytest

from outbox_core.observer import Dead, Reconnecting
from outbox_core.relay import reach
from outbox_core.relay.settings import RelaySettings
from tests.integration.relay.bench import TABLE, TOPIC, Bench, ignore

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]
_BEYOND_ALL_TEXT = f"""
    INSERT INTO {TABLE} (tenant_id, topic, event_id, digest, payload)
    SELECT
        '00000000-0000-0000-0000-000000000000', '{TOPIC}', gen_random_uuid(), decode(repeat('00', 32), 'hex'),
        (SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 8500))
"""  # noqa: S608
"""Some kilobytes as they are stored, and more than the server's gigabyte as text."""


async def test_a_row_that_cannot_be_written_out_is_dead_and_the_others_arrive(bench: Bench) -> None:
    await bench.enqueue(1, 2)
    await bench.connection.execute(_BEYOND_ALL_TEXT)
    await bench.enqueue(*range(3, 9))
    async with bench.relay(ignore, database_timeout=20.0, takeover=20.0, lock_ttl=60.0):
        assert await bench.settled(90.0) == {"published": 8, "dead": 1}
    (dead,) = [row for row in await bench.rows("NULL") if row["state"] == "dead"]
    assert dead["last_error"].startswith("STORAGE.UNREADABLE ")
    assert {row["attempts"] for row in await bench.rows("NULL")} == {1}
    assert len(bench.heard.of(Dead)) == 1
    assert any("ProgramLimitExceededError" in event.error for event in bench.heard.of(Reconnecting))


@pytest.mark.parametrize("time", ["-infinity", "0044-03-15 BC"])
async def test_times_beyond_what_can_be_told_do_not_stop_claims_that_look_less_far(
    bench: Bench, time: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = reach.Reach.__init__

    def short(self: reach.Reach, settings: RelaySettings) -> None:
        made(self, settings)
        self.span = 5

    monkeypatch.setattr(reach.Reach, "__init__", short)
    await bench.enqueue(*range(60))
    await bench.connection.execute(f"UPDATE {TABLE} SET available_at = '{time}'")  # noqa: S608
    async with bench.relay(ignore):
        assert await bench.settled() == {"published": 60}
