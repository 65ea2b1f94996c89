"""The ledger of the demonstration: every discrepancy is seen and named, and the command fails for it."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

import pytest
from click.testing import CliRunner

from outbox_core.cli.root import root
from outbox_core.demo.ledger import Ledger
from outbox_core.demo.plan import Plan
from outbox_core.demo.stage import Stage
from outbox_core.errors import ConfigError


def ids(*numbers: int) -> frozenset[UUID]:
    return frozenset(UUID(int=number) for number in numbers)


TRUE = Ledger(
    acknowledged=ids(1, 2, 3),
    rolled_back=ids(7, 8),
    committed=ids(1, 2, 3),
    published=ids(1, 2, 3),
    consumed=ids(1, 2, 3),
    duplicates=2,
)


def test_an_account_in_order() -> None:
    assert TRUE.problems == []
    assert TRUE.document() == {
        "committed": 3,
        "published": 3,
        "consumed": 3,
        "duplicates": 2,
        "rolled_back": 2,
        "rolled_back_seen": 0,
        "dead": 0,
        "balanced": True,
        "problems": [],
    }


LIES = {
    "an order without an acknowledgement": (
        {"acknowledged": ids(1, 2)},
        "committed orders of which the service does not know: 1, such as 00000000-0000-0000-0000-000000000003",
    ),
    "a lost order": ({"acknowledged": ids(1, 2, 3, 4)}, "orders lost after their commit: 1"),
    "not published": ({"published": ids(1, 3)}, "committed and not published: 1"),
    "published for nothing": ({"published": ids(1, 2, 3, 4)}, "published without a committed order: 1"),
    "a lost message": ({"consumed": ids(2)}, "committed and not consumed: 2"),
    "the right number of the wrong ones": (
        {"consumed": ids(1, 2, 4)},
        "consumed without a committed order: 1",
    ),
    "a rolled-back one seen": ({"consumed": ids(1, 2, 3, 8)}, "rolled back and seen all the same: 1"),
    "a rolled-back one published": ({"published": ids(1, 2, 3, 7)}, "rolled back and seen all the same: 1"),
    "a dead one": ({"dead": 1}, "given up as dead: 1"),
    "nothing shown": (
        {"acknowledged": ids(), "committed": ids(), "published": ids(), "consumed": ids()},
        "no order was committed",
    ),
    "nothing rolled back": ({"rolled_back": ids()}, "no order was rolled back"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_discrepancy_is_named(lie: str) -> None:
    changes, problem = LIES[lie]
    ledger = replace(TRUE, **changes)
    assert not ledger.balanced
    assert any(problem in text for text in ledger.problems), ledger.problems


def show(monkeypatch: pytest.MonkeyPatch, ledger: Ledger, *args: str) -> tuple[int, str, str]:
    async def perform(plan: Plan, stage: Stage) -> Ledger:
        stage.tell("something happened", "broken")
        return ledger

    monkeypatch.setattr("outbox_core.demo.story.perform", perform)
    done = CliRunner().invoke(root, ["demo", *args], prog_name="outbox")
    return done.exit_code, done.stdout, done.stderr


def test_the_command_succeeds_when_the_account_is_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = show(monkeypatch, TRUE)
    assert (code, err) == (0, "")
    assert "something happened" in out
    assert out.splitlines()[-1].startswith("committed = published = consumed")


def test_the_command_fails_when_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = show(monkeypatch, replace(TRUE, consumed=ids(1, 2)))
    assert code == 11
    assert err.startswith("error: the ledger is off: committed and not consumed: 1, such as ")
    assert "committed = published = consumed" not in out


def test_json_holds_the_account_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = show(monkeypatch, replace(TRUE, published=ids(1)), "--json")
    document = json.loads(out)
    assert code == 11
    assert (document["balanced"], document["published"]) == (False, 1)
    assert "something happened" in err


@pytest.mark.parametrize("changes", [{"duration": 4.9}, {"duration": 301.0}, {"rate": 0}, {"rate": 1001}])
def test_a_plan_out_of_bounds(changes: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"must be from|takes orders for"):
        Plan(**changes)  # type: ignore[arg-type]
