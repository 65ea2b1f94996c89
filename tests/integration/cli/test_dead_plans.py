"""Plans that ``outbox dead`` keeps: carried out later, by nobody else, and as what they were made for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.cli.command import invoke
from tests.integration.cli.dead import BECAUSE, dead, error
from tests.integration.cli.sql import TABLE, add, execute, states


def test_a_plan_is_kept_and_carried_out_later(shop: str, tmp_path: Path) -> None:
    add(shop, "dead", 3)
    planned = dead(shop, "replay", "--all", "--dry-run", "--json")
    assert (planned.code, states(shop)) == (0, {"dead": 3})
    file = tmp_path / "plan.json"
    file.write_text(planned.out)
    add(shop, "dead", 2, age=0, error="TX.LATER died after the plan")
    execute(
        shop,
        "DELETE FROM shop.orders_outbox WHERE event_id = (SELECT event_id FROM shop.orders_outbox"
        " WHERE last_error LIKE 'TX.TIMEOUT%' LIMIT 1)",
    )
    done = dead(shop, "replay", "--plan", str(file), *BECAUSE)
    assert done.code == 0, done.err
    assert "1 of them have moved on" in done.err
    assert "1 had moved on and were left alone" in done.err
    assert states(shop) == {"pending": 2, "dead": 2}
    again = dead(shop, "replay", "--plan", str(file), *BECAUSE)
    assert (again.code, "was carried out on" in error(again)) == (12, True)


def test_a_plan_that_has_gone_stale(shop: str, tmp_path: Path) -> None:
    add(shop, "dead", 3)
    file = tmp_path / "plan.json"
    file.write_text(dead(shop, "discard", "--all", "--dry-run", "--json").out)
    assert dead(shop, "replay", "--all", *BECAUSE).code == 0
    add(shop, "dead", 3, age=0)
    stale = dead(shop, "discard", "--plan", str(file), *BECAUSE)
    assert (stale.code, "has gone stale: none of its 3 messages" in error(stale)) == (12, True)
    assert states(shop) == {"pending": 3, "dead": 3}


def test_a_plan_that_is_none_or_another_tables(shop: str, tmp_path: Path) -> None:
    add(shop, "dead", 1)
    file = tmp_path / "plan.json"
    for text in ("", "{}", '{"plan": {"id": 1}}', "[1]"):
        file.write_text(text)
        refused = dead(shop, "replay", "--plan", str(file), *BECAUSE)
        assert (refused.code, "is not a plan" in error(refused)) == (2, True)
    planned = dead(shop, "replay", "--all", "--dry-run", "--json").out
    assert invoke("schema", "create", "-t", "shop.other_outbox", database=shop).code == 0
    other = invoke(
        "dead", "replay", "-t", "shop.other_outbox", "--plan", "-", *BECAUSE, database=shop, stdin=planned
    )
    assert (other.code, f"made for {TABLE}" in error(other)) == (2, True)
    both = dead(shop, "replay", "--plan", "-", "--all", *BECAUSE, stdin=planned)
    assert (both.code, "leave the filter out" in error(both)) == (2, True)


@pytest.mark.parametrize(("made_for", "given_to"), [("replay", "discard"), ("discard", "replay")])
def test_a_plan_is_not_carried_out_as_something_else(shop: str, made_for: str, given_to: str) -> None:
    add(shop, "dead", 2)
    planned = dead(shop, made_for, "--all", "--dry-run", "--json").out
    refused = dead(shop, given_to, "--plan", "-", *BECAUSE, stdin=planned)
    assert (refused.code, f"made to {made_for}, not to {given_to}" in error(refused)) == (2, True)
    assert states(shop) == {"dead": 2}
