"""The checker can fail: everything that it looks for is found when it is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.faults.classify import Committed, Evidence, Seen, Verdict, classify
from tests.faults.kinds import KINDS
from tests.faults.kinds.process import LEADER_POINTS, POINTS
from tests.faults.matrix import Fate, Ran, exists, judge, latest, read_results, wanted
from tests.faults.plan import BROKERS, Broker, Plan
from tests.faults.processes import Place
from tests.faults.relay_record import Mark, Presented, RelayRecord
from tests.faults.rows import ROWS, Row
from tests.faults.trail import ENDED_BY, Step
from tests.faults.trial import Result

TTL = 5.0
STALLS = 1
LEASED = Step("a1", "r0", "pending", "leased", None, "t1", row="a1")
PUBLISHED = Step("a1", "r0", "leased", "published", "t1", None, 0.1, row="a1")
OTHERS = [
    replace(step, event_id=event_id, row=event_id)
    for event_id in ("a2", "a3", "u1")
    for step in (LEASED, PUBLISHED)
]
"""What became of the other messages that were delivered."""


def honest(trail: Sequence[Step]) -> RelayRecord:
    """What relays tell that did what the trail says, and meant to."""
    claims = {step.new_token: Mark(step.who, 0.0) for step in reversed(trail) if step.new_token is not None}
    presented = [
        Presented(step.who, ENDED_BY[step.became][0], step.row, step.old_token, 0.0)
        for step in trail
        if step.ends_a_lease and step.old_token is not None
    ]
    return RelayRecord(claims, presented)


def line(kind: str, kept: str = "", back: str = "", at: float = 1.0) -> dict[str, Any]:
    return {"kind": kind, "kept": kept.split(), "back": back.split(), "at": at}


def seen(ids: str, at: float = 2.0) -> list[Seen]:
    return [Seen(event_id, at=at) for event_id in ids.split()]


GOOD = Evidence(
    history=[
        line("invoke", "a1 a2"), line("ok", "a1 a2"),
        line("invoke", "a3", "s1"), line("ok", "a3", "s1"),
        line("invoke", back="x1"), line("fail", back="x1"),
        line("invoke", "u1"), line("info", "u1"), line("invoke", "u2"),
        line("invoke", "p1"), line("ok", "p1"),
    ],
    ledger={
        "a1": Committed("a", 1), "a2": Committed("a", 2), "a3": Committed("a", 3),
        "u1": Committed("b", 1), "p1": Committed(poison=True),
    },
    states={"a1": "published", "a2": "published", "a3": "published", "u1": "published", "p1": "dead"},
    trail=[LEASED, PUBLISHED, *OTHERS],
    told=honest([LEASED, PUBLISHED, *OTHERS]),
    stored=seen("a1 u1 a2 a1 a3"),
    arrived={"live": seen("a1 u1 a2 a1 a3"), "group": seen("a1 a2 u1 a3")},
)  # fmt: skip


def judged(**changes: Any) -> Verdict:
    if "trail" in changes:
        changes = {"told": honest(changes["trail"]), **changes}
    return classify(replace(GOOD, **changes), lock_ttl=TTL, stalls=STALLS)


def test_a_good_run_is_counted() -> None:
    verdict = judged()
    assert verdict.good
    assert (verdict.committed, verdict.delivered, verdict.dead) == (5, 4, ["p1"])
    assert verdict.duplicates == 1
    assert (verdict.unknown, verdict.unknown_committed, verdict.rolled_back) == (["u1", "u2"], 1, 2)


def test_a_loss_is_found_whatever_the_table_says() -> None:
    verdict = judged(stored=seen("a1 u1 a3"))
    assert (verdict.lost, verdict.good) == (["a2"], False)


def test_what_only_the_consumer_saw_is_lost_all_the_same() -> None:
    assert judged(stored=seen("a1 a2 u1")).lost == ["a3"]


@pytest.mark.parametrize("made_up", ["x1", "s1", "u2", "nobody-wrote-it"])
def test_a_phantom_is_found(made_up: str) -> None:
    assert judged(stored=[*GOOD.stored, Seen(made_up)]).phantom == [made_up]
    verdict = judged(arrived={**GOOD.arrived, "late": [*GOOD.stored, Seen(made_up, at=3.0)]})
    assert (verdict.phantom, verdict.good) == ([made_up], False)


def test_what_comes_before_it_was_written_is_a_phantom() -> None:
    assert judged(arrived={"live": seen("a1", at=0.5)}).phantom == ["a1"]


def test_a_reordering_is_found_and_a_repetition_is_none() -> None:
    verdict = judged(stored=seen("a2 a1 a3 u1"))
    assert (verdict.reordered, verdict.good) == (["a1"], False)
    assert judged(stored=seen("a1 a2 a3 u1 a1 a2")).reordered == []


def test_a_dead_message_that_was_not_meant_to_die_is_found() -> None:
    verdict = judged(states={**GOOD.states, "a2": "dead"}, stored=seen("a1 a3 u1"))
    assert (verdict.dead_unplanned, verdict.lost, verdict.good) == (["a2"], [], False)


@pytest.mark.parametrize(
    "changes",
    [
        {"ledger": {event_id: row for event_id, row in GOOD.ledger.items() if event_id != "a3"}},
        {"ledger": {**GOOD.ledger, "x1": Committed()}},
        {"ledger": {**GOOD.ledger, "nobody-tried-it": Committed()}},
        {
            "history": [*GOOD.history, line("invoke", "a4", "s4"), line("info", "a4", "s4")],
            "ledger": {**GOOD.ledger, "s4": Committed()},
        },
    ],
)
def test_a_database_that_forgets_or_makes_up_commits_is_found(changes: dict[str, Any]) -> None:
    verdict = judged(**changes)
    assert len(verdict.broken_commits) == 1
    assert not verdict.good


def test_the_matrix_has_every_row_and_names_only_what_exists() -> None:
    assert [row.number for row in ROWS] == list(range(1, 34))
    assert all(row.kinds or row.tests or row.by_broker for row in ROWS)
    assert {kind for row in ROWS for kind in row.kinds} <= set(KINDS)
    assert {point for row in ROWS for point in row.points} <= {*POINTS, *LEADER_POINTS}
    named = {test for row in ROWS for test in wanted(row, 0, every_broker=True)}
    assert [test for test in sorted(named) if not exists(test)] == []
    assert not exists("tests/faults/test_checker.py::test_that_is_not_there")


def test_brokers_take_turns() -> None:
    row = Row(0, "", (), ("t",), {"kafka": ("k",), "nats": ("n",), "amqp": ("a",)})
    assert {wanted(row, seed, every_broker=False) for seed in range(3)} == {
        ("t", "k"),
        ("t", "n"),
        ("t", "a"),
    }
    assert len(wanted(row, 0, every_broker=True)) == 1 + len(BROKERS)


ROW = Row(1, "", ("kill",), ("f.py::test",))
RAN = [Ran("f.py::test[x]", Fate.PASSED)]


@pytest.mark.parametrize(
    ("felt", "missing", "ran", "good"),
    [
        ({("kill", "nats")}, {}, RAN, True),
        (set[tuple[str, Broker]](), {}, RAN, False),
        (set[tuple[str, Broker]](), {"kill": "no compiler"}, RAN, True),
        ({("kill", "nats")}, {}, [], False),
        ({("kill", "nats")}, {}, [*RAN, Ran("f.py::test[y]", Fate.FAILED)], False),
        ({("kill", "nats")}, {}, [Ran("f.py::test", Fate.SKIPPED, "not root")], True),
        ({("kill", "nats")}, {}, [Ran("f.py::test_other", Fate.PASSED)], False),
    ],
)
def test_a_row_is_proven_or_not(
    felt: set[tuple[str, Broker]],
    missing: dict[str, str],
    ran: list[Ran],
    good: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OUTBOX_TEST_REQUIRE", raising=False)
    assert judge(ROW, ROW.tests, felt, missing, ran).good is good


def test_a_record_of_pytest_is_read() -> None:
    text = (
        '<testsuites><testsuite><testcase file="a.py" name="t[1]"/><testcase file="a.py" name="u"><failure/></testcase>'
        '<testcase file="a.py" name="v"><skipped message="not root"/></testcase>'
        '<testcase file="a.py" name="w"><skipped type="pytest.xfail" message="not yet"/></testcase>'
        "</testsuite></testsuites>"
    )
    assert read_results(text) == [
        Ran("a.py::t[1]", Fate.PASSED),
        Ran("a.py::u", Fate.FAILED),
        Ran("a.py::v", Fate.SKIPPED, "not root"),
        Ran("a.py::w", Fate.FAILED),
    ]


def test_the_last_of_several_records_of_a_test_counts(tmp_path: Path) -> None:
    case = '<testcase file="tests/test_a.py" name="test_{}">{}</testcase>'
    first, second = tmp_path / "1.xml", tmp_path / "2.xml"
    failed = case.format("two", "<failure/>")
    first.write_text(f"<testsuite>{case.format('one', '')}{failed}</testsuite>")
    second.write_text(f"<testsuite>{case.format('two', '')}</testsuite>")

    assert Ran("tests/test_a.py::test_two", Fate.FAILED) in latest([first])
    assert {ran.test: ran.fate for ran in latest([first, second])} == {
        "tests/test_a.py::test_one": Fate.PASSED,
        "tests/test_a.py::test_two": Fate.PASSED,
    }


class Ended:
    """A process that ended by itself."""

    exit_code = 1

    def kill(self) -> None:
        pass


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["kill", "look"])
async def test_a_process_that_ends_by_itself_is_not_forgotten(how: str) -> None:
    run: Any = None
    child: Any = Ended()
    place = Place(run, "m", "r1", {}, Path(), {}, child=child, name="r1.0")
    if how == "kill":
        await place.kill()
    assert place.unplanned_ends() == ["r1.0 ended with 1"]
    await place.kill()
    assert place.unplanned_ends() == ["r1.0 ended with 1"]


def test_a_run_without_a_message_is_not_good() -> None:
    plan = Plan(seed=1, broker="nats", seconds=0.0, ordered=True)
    assert not Result(plan, 0.0).good
    assert Result(plan, 0.0, verdict=judged()).good
