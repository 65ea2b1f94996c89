"""The checker can fail: what was altered, misplaced, not seen, miscounted, slow or short of its count is found."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import Any
from uuid import UUID

import pytest

from outbox_core import headers as wire
from outbox_core.message import Message
from outbox_core.relay.settings import RelaySettings
from tests.faults import counts
from tests.faults.classify import FAILURES, Committed, Seen, Verdict
from tests.faults.content import NAMELESS, digest_of, of_message, of_record
from tests.faults.kinds.process import LEADER_POINTS, POINTS
from tests.faults.matrix import Proof
from tests.faults.nemesis import Deed
from tests.faults.page import PAGE
from tests.faults.plan import Plan
from tests.faults.plans import in_one_pass, tasks
from tests.faults.rows import ROWS
from tests.faults.stops import LIMIT_SECONDS, Stop, stops
from tests.faults.suites import Done, Suite, counted, suites
from tests.faults.summary import summary
from tests.faults.test_checker import GOOD, LEASED, OTHERS, PUBLISHED, judged, seen
from tests.faults.trail import Step
from tests.faults.trial import Result, cleaned_early

TABLE = "public.faults_outbox"
MESSAGE = Message(
    "a.b",
    {"n": 1.5, "ü": [None]},
    key="k",
    event_id=UUID(int=5),
    tenant_id=UUID(int=7),
    headers={"App-Note": "✓"},
)
ON_THE_WIRE = {
    wire.EVENT_ID: str(UUID(int=5)), wire.TENANT_ID: str(UUID(int=7)), wire.TOPIC: "a.b", wire.KEY: "k",
    wire.SEQUENCE: "9", wire.ATTEMPTS: "1", wire.REPLAYS: "0", wire.TABLE: TABLE,
    wire.CREATED_AT: "2026-01-01T00:00:00+00:00", wire.CONTENT_TYPE: "application/json",
    "App-Note": "✓", "Nats-Msg-Id": str(UUID(int=5)),
}  # fmt: skip
BODY = '{"ü": [null], "n": 1.50}'.encode()
WRITTEN = of_message(MESSAGE, TABLE, 9).digest()


def test_what_arrives_as_it_was_written_has_the_writers_digest() -> None:
    assert digest_of(ON_THE_WIRE, BODY, key=(b"k", b"k")) == WRITTEN


@pytest.mark.parametrize(
    "name", [wire.EVENT_ID, wire.TENANT_ID, wire.TOPIC, wire.KEY, wire.SEQUENCE, wire.TABLE]
)
@pytest.mark.parametrize("value", ["", "other"])
def test_another_value_of_any_header_is_another_digest(name: str, value: str) -> None:
    assert digest_of({**ON_THE_WIRE, name: value}, BODY) != WRITTEN
    assert digest_of({key: kept for key, kept in ON_THE_WIRE.items() if key != name}, BODY) != WRITTEN


@pytest.mark.parametrize(
    ("changes", "body"),
    [
        ({"App-Note": "?"}, BODY),
        ({"app-more": "1"}, BODY),
        ({wire.CONTENT_TYPE: "text/plain"}, BODY),
        ({wire.ATTEMPTS: "0"}, BODY),
        ({}, BODY.replace(b"1.50", b"1.51")),
        ({}, BODY[:-1]),
    ],
)
def test_another_content_is_another_digest(changes: dict[str, str], body: bytes) -> None:
    assert digest_of({**ON_THE_WIRE, **changes}, body) != WRITTEN


def test_a_place_of_the_broker_that_is_wrong_is_another_digest() -> None:
    assert digest_of(ON_THE_WIRE, BODY, key=(b"other", b"k")) != WRITTEN
    assert of_record({}, b"").event_id == NAMELESS


def test_bytes_must_not_change_at_all() -> None:
    message = Message("a.b", body=b'{"a": 1}', content_type="application/octet-stream", event_id=UUID(int=5))
    content = of_message(message, TABLE, 1)
    assert content.digest() != replace(content, body=b'{"a":1}').digest()


@pytest.mark.parametrize("where", ["stored", "arrived"])
def test_what_was_altered_is_found_whoever_read_it(where: str) -> None:
    ledger = {**GOOD.ledger, "a2": replace(GOOD.ledger["a2"], content="as written")}
    as_written = [replace(each, content="as written" * (each.event_id == "a2")) for each in GOOD.stored]
    good: dict[str, Any] = {"ledger": ledger, "stored": as_written, "arrived": {"live": as_written}}
    assert judged(**good).good
    spoiled = GOOD.stored if where == "stored" else {"live": GOOD.stored}
    verdict = judged(**{**good, where: spoiled})
    assert verdict.wrong == {"altered": ["a2"]}


def test_a_key_in_two_partitions_is_found() -> None:
    spread = [*seen("a1 a3"), Seen("u1", partition=1), Seen("a2", partition=0)]
    assert judged(stored=spread).split_keys == []
    spread[-1] = Seen("a2", partition=1)
    assert judged(stored=spread).wrong.keys() >= {"split_keys"}
    assert judged(stored=spread).split_keys == ["a"]


def test_poison_that_was_delivered_is_found() -> None:
    verdict = judged(stored=[*GOOD.stored, Seen("p1")])
    assert (verdict.delivered_poison, verdict.good) == (["p1"], False)


@pytest.mark.parametrize("consumer", ["live", "group"])
def test_what_one_consumer_never_saw_is_found(consumer: str) -> None:
    verdict = judged(arrived={**GOOD.arrived, consumer: seen("a1 u1 a3")})
    assert verdict.wrong == {"unseen": ["a2"]}


def test_what_is_to_be_kept_and_is_gone_is_found() -> None:
    ends = {"p1": "dead", "a1": "published", "a2": "published", "b1": "leased"}
    plan = Plan(seed=1, broker="nats", seconds=0.0, ordered=True)
    assert cleaned_early(ends, {"p1", "a1", "a2"}, plan) == []
    assert cleaned_early(ends, {"a2"}, plan) == ["p1", "a1"]
    assert cleaned_early(ends, {"a2"}, replace(plan, on_published="delete")) == ["p1"]
    assert cleaned_early(ends, {"a2"}, replace(plan, retention=30.0, dead_retention=30.0)) == []
    assert judged(gone=["p1"]).wrong == {"cleaned_early": ["p1"]}


def test_attempts_that_were_miscounted_are_found() -> None:
    verdict = judged(trail=[LEASED, replace(PUBLISHED, miscount=True), *OTHERS])
    assert verdict.wrong == {"miscounted": ["a1"]}


@pytest.mark.parametrize(
    ("trail", "untracked"),
    [
        pytest.param([], ["a1", "a2", "a3", "u1"], id="nothing was recorded"),
        pytest.param(OTHERS, ["a1"], id="nothing of one message"),
        pytest.param([LEASED, *OTHERS], ["a1"], id="that it was published is not there"),
        pytest.param([LEASED, replace(PUBLISHED, became="pending"), *OTHERS], ["a1"], id="given back"),
    ],
)
def test_a_delivery_that_the_trail_knows_nothing_of_is_found(trail: list[Step], untracked: list[str]) -> None:
    assert judged(trail=trail).wrong == {"untracked": untracked}


def test_every_failure_has_a_list_and_makes_a_verdict_bad() -> None:
    for name in FAILURES:
        verdict = Verdict()
        assert verdict.good
        getattr(verdict, name).append("x")
        assert not verdict.good


def told(name: str, relay: str, at: float) -> dict[str, Any]:
    return {"kind": "event", "name": name, "relay": relay, "at": at}


def test_a_slow_stop_is_found() -> None:
    found = stops(
        [
            told("Told", "r0.1", 1.0), told("Told", "r1.0", 1.0), told("Ended", "r1.0", 3.9),
            told("Ended", "r0.1", 1.0 + LIMIT_SECONDS + 0.01), told("Ended", "r2.0", 9.0), told("Told", "r3.0", 9.0),
        ]
    )  # fmt: skip
    assert [(stop.relay, stop.slow) for stop in found] == [("r1.0", False), ("r0.1", True)]
    assert str(found[1]) == "r0.1 took 3.01 s to stop, and may take 3 s"


PLAN = Plan(seed=1, broker="nats", seconds=0.0, ordered=True)


def deed(kind: str, hit: bool = True, words: str = "") -> Deed:
    return Deed(kind, 0.0, 1.0, 2.0, hit, words)


def test_what_was_felt_is_counted_and_what_was_not_is_not() -> None:
    deeds = [
        deed("kill_relay"), deed("kill_writer", hit=False), deed("kill_postgres"), deed("restart_broker"),
        deed("kill_relay_at_a_point", words="r0 died at claim.after for the 2. time"),
        deed("kill_relay_at_a_point", words="r0 died at claim.after for the 1. time"),
        replace(deed("cut_broker"), paired=True), replace(deed("lock_table"), paired=True),
        replace(deed("cut_broker"), paired=True, recovered=3.0),
        replace(deed("lock_table", hit=False), paired=True, recovered=3.0),
    ]  # fmt: skip
    found = counts.of_faults([Result(PLAN, 0.0, deeds=deeds)])
    assert found == {
        "kills": 4, "crash_points": 1, "postgres_restarts": 1, "broker_restarts": 1, "combinations": 1,
    }  # fmt: skip


def test_a_count_that_was_not_reached_is_named() -> None:
    suite = Suite("s", (), {})
    done = [Done(suite, True, {"simulation_seeds": 1999, "cancel_points": 80, "awaits": 81}, 1.0)]
    short = counts.shortfalls(counts.reached([], done), counts.wanted(done))
    assert {"simulation seeds: 1999 of 2000", "cancel points: 80 of 81", "kills: 0 of 200"} <= set(short)
    everything = dict.fromkeys(counts.WANTED, 10_000)
    assert counts.shortfalls(everything, counts.wanted(done)) == []
    assert counts.shortfalls({**everything, "kills": 199}, counts.wanted(done)) == ["kills: 199 of 200"]


def test_the_counts_are_in_the_summary_and_judged_in_the_long_form_alone() -> None:
    result = Result(PLAN, 0.0, ended=1.0, stops=[Stop("r0", 0.5), Stop("r1", 0.75)])
    result.verdict.dead_unplanned.append("x")
    for judged_ in (False, True):
        found = summary([result], seed=1, seconds=1.0, good=False, judged=judged_)
        assert bool(found["counts_short"]) is judged_
        assert found["counts"].keys() == found["counts_wanted"].keys()
    assert (found["slowest_stop_seconds"], found["stops"], found["dead_unplanned"]) == (0.75, 2, 1)
    assert found.keys() >= {
        *FAILURES,
        "committed",
        "delivered",
        "dead",
        "duplicates",
        "faults_by_kind",
        "seed",
    }
    assert (found["matrix_rows_absent"], found["broken_commits"]) == (0, 0)


def test_what_was_not_felt_and_what_the_matrix_lacks_are_in_the_summary() -> None:
    result = Result(PLAN, 0.0, ended=1.0, deeds=[deed("kill_relay"), deed("kill_writer", hit=False)])
    result.problems.append("a writer ended with 1")
    proofs = [
        Proof(ROWS[4], shown=(), gaps=("freeze_relay was not felt",), absent=()),
        Proof(ROWS[7], shown=("kill_broker",), gaps=(), absent=("restart_broker: no broker",)),
    ]
    found = summary([result], (), proofs, seed=1, seconds=1.0, good=False)
    assert (found["faults"], found["faults_not_felt"]) == (1, 1)
    assert found["problems"] == ["a writer ended with 1", "row 5: freeze_relay was not felt"]


def test_suites_are_counted_by_what_they_did() -> None:
    assert counted("2000 seeds in 3.1 s, 0 failed: []\n", "") == {"simulation_seeds": 2000}
    assert counted("2000 seeds in 3.1 s, 1 failed: [7]\n", "") == {}
    record = "".join(
        f'<testcase><properties><property name="{name}" value="{value}"/></properties></testcase>'
        for name, value in (("cancel_points", 3), ("cancel_points", 4), ("awaits", 7))
    )
    assert counted("", f"<testsuite>{record}</testsuite>") == {"cancel_points": 7, "awaits": 7}
    wanted: Counter[str] = Counter()
    for group in suites(1):
        for suite in group:
            wanted.update(suite.wanted)
    assert {**wanted, **counts.WANTED} == {**counts.WANTED, **wanted}
    assert wanted.keys() | counts.of_faults([]).keys() == counts.WANTED.keys()


def test_what_several_suites_counted_is_added_up() -> None:
    suite = Suite("s", (), {})
    done = [
        Done(suite, True, {"simulation_seeds": 1000}, 1.0),
        Done(suite, True, {"simulation_seeds": 990}, 1.0),
    ]
    assert counts.reached([], done)["simulation_seeds"] == 1990


def arguments(**given: Any) -> argparse.Namespace:
    names = ("broker", "mode", "on_published", "seconds", "kinds", "long", "soak")
    return argparse.Namespace(**{**dict.fromkeys(names), **given})


def test_the_long_form_has_every_broker_in_both_modes_with_goals_and_a_soak() -> None:
    given = arguments(long=0.0)
    planned = tasks(given, 1)
    first = [next(planned) for _ in range(in_one_pass(given))]
    assert {(task.plan.broker, task.plan.ordered) for task in first if task.kinds} == {
        (broker, ordered) for broker in ("kafka", "nats", "amqp") for ordered in (True, False)
    }
    assert [bool(task.kinds) for task in first] == [True] * 6 + [False]
    deleting = {(task.plan.broker, task.plan.ordered) for task in first if task.plan.on_published == "delete"}
    assert deleting == {("kafka", False), ("nats", True), ("amqp", False)}
    each = {kind: sum(task.goals.get(kind, 0) for task in first) for kind in counts.EACH_RUN}
    points = 3 * (2 * len(POINTS) + len(LEADER_POINTS))
    kills = sum(each.get(kind, 0) for kind in counts.KILLS) + points
    assert kills >= counts.WANTED["kills"]
    for server in ("postgres", "broker"):
        assert each[f"kill_{server}"] + each[f"restart_{server}"] >= counts.WANTED[f"{server}_restarts"]
    assert not next(planned).goals


def test_the_page_says_how_many_moments_a_long_run_has() -> None:
    moments = counts.WANTED["crash_points"]
    assert moments == len(POINTS) + len(LEADER_POINTS)
    assert f"{moments} named moments" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(("hours", "seconds"), [(0.0, 420.0), (0.25, 420.0), (4.0, 3600.0)])
def test_the_soak_of_a_long_form_has_a_quarter_of_its_hours(hours: float, seconds: float) -> None:
    given = arguments(long=hours, mode="ordered", broker="nats")
    planned = tasks(given, 1)
    two_passes = [next(planned) for _ in range(2 * in_one_pass(given))]
    assert [task.plan.seconds for task in two_passes if not task.kinds] == [seconds, 420.0]


def test_the_short_form_takes_two_brokers_in_turn() -> None:
    planned = [
        [(task.plan.broker, task.plan.ordered) for task in tasks(arguments(), seed)] for seed in range(3)
    ]
    assert planned[0] == [("kafka", True), ("nats", False)]
    assert {broker for runs in planned for broker, ordered in runs if ordered} == {"kafka", "nats", "amqp"}
    (only,) = tasks(arguments(mode="side-by-side", broker="nats", kinds="kill_relay"), 5)
    assert (only.plan.ordered, only.kinds) == (False, ["kill_relay"])


@pytest.mark.parametrize("seed", [4, 5])
def test_the_short_form_keeps_what_is_published_in_one_mode_and_deletes_it_in_the_other(seed: int) -> None:
    kept, deleted = [
        [task.plan.ordered for task in tasks(arguments(), seed) if task.plan.on_published == each]
        for each in ("mark", "delete")
    ]
    assert (kept, deleted) == (([True], [False]) if seed % 2 else ([False], [True]))
    asked_for = list(tasks(arguments(on_published="delete"), seed))
    assert {task.plan.settings["on_published"] for task in asked_for} == {"delete"}


def test_where_nothing_is_broken_a_relay_has_its_own_times() -> None:
    given = arguments(long=0.0)
    *broken, soak = islice(tasks(given, 7), in_one_pass(given))
    assert soak.plan.calm
    assert soak.plan.settings["database_timeout"] == RelaySettings().database_timeout
    assert {task.plan.settings["database_timeout"] for task in broken} == {1.0}


def test_a_ledger_row_without_an_arrival_says_nothing_of_its_content() -> None:
    assert judged(ledger={**GOOD.ledger, "p1": Committed(poison=True, content="never read")}).altered == []
