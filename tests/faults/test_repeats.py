"""The checker can fail: what is sent again without a fault that explains it is found, and what has one is borne."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.faults import page, relay_record, report
from tests.faults.classify import Evidence, Verdict, classify
from tests.faults.kinds import KINDS
from tests.faults.nemesis import Deed
from tests.faults.plan import Plan
from tests.faults.relay_record import Account, Mark, Presented, RelayRecord
from tests.faults.repeats import (
    BROKERS,
    DATABASES,
    DEATHS,
    HARMLESS,
    STANDSTILLS,
    STARTING,
    Broken,
    repeats,
    stalls,
)
from tests.faults.summary import summary
from tests.faults.test_checker import GOOD, TTL, seen
from tests.faults.trail import Step
from tests.faults.trial import Result, broken_by
from tests.integration.relay.journal import Journal

LEASED = Step("m", "r0", "pending", "leased", None, "t1", row="m")
PUT_OFF = Step("m", "r0", "leased", "pending", "t1", None, 2.0, row="m")
AGAIN = Step("m", "r0", "pending", "leased", None, "t2", row="m")
TAKEN = Step("m", "r1", "leased", "leased", "t1", "t2", 6.0, row="m")
PUBLISHED = Step("m", "r0", "leased", "published", "t2", None, 0.1, row="m")
FAILED, LAPSED = [LEASED, PUT_OFF, AGAIN, PUBLISHED], [LEASED, TAKEN, replace(PUBLISHED, who="r1")]
CLAIMS = {"t1": Mark("r0", 10.0), "t2": Mark("r0", 16.0)}
FAIL = Presented("r0", "fail", "m", "t1", 12.0)
TWICE = RelayRecord(CLAIMS, [FAIL], {"m": 2}, last_words={"r0": 11.0})
"""Sent twice: under its first lease, from 10.0 on, and its second, from 16.0 on."""


def fault(kind: str, began: float = 11.0, ended: float = 11.5) -> Broken:
    return Broken(kind, began, ended)


def unexplained(trail: list[Step], told: RelayRecord, *broken: Broken, stored: int = 1) -> int:
    return len(repeats(trail, told, {"m": stored}, broken).unexplained)


def test_every_kind_of_fault_has_its_place() -> None:
    places = (BROKERS, STANDSTILLS, DEATHS, DATABASES, HARMLESS)
    assert sorted(kind for place in places for kind in place) == sorted([*KINDS, STARTING])


@pytest.mark.parametrize("kind", [*KINDS, STARTING])
def test_what_failed_is_explained_by_what_keeps_acknowledgements_away(kind: str) -> None:
    assert unexplained(FAILED, TWICE, fault(kind)) == (kind not in BROKERS | STANDSTILLS)


@pytest.mark.parametrize("kind", [*KINDS, STARTING])
def test_what_was_acknowledged_and_put_off_needs_a_relay_that_stood_still(kind: str) -> None:
    told = replace(TWICE, acknowledged={"m": [Mark("r0", 11.9)]})
    assert unexplained(FAILED, told, fault(kind)) == (kind not in STANDSTILLS)
    for another in (Mark("r0", 9.0), Mark("r0", 13.0), Mark("r1", 11.9)):
        told = replace(TWICE, acknowledged={"m": [another]})
        assert unexplained(FAILED, told, fault("cut_broker")) == 0


@pytest.mark.parametrize("kind", [*KINDS, STARTING])
def test_what_lapsed_is_explained_by_what_keeps_outcomes_from_the_record(kind: str) -> None:
    assert unexplained(LAPSED, TWICE, fault(kind)) == (kind not in STANDSTILLS | DEATHS | DATABASES)


@pytest.mark.parametrize(
    ("last_words", "presented", "wrong"),
    [
        pytest.param(11.0, [], 0, id="it was gone"),
        pytest.param(30.0, [], 1, id="it lived and told nobody"),
        pytest.param(
            30.0, [Presented("r0", "publish", "m", "t1", 17.0, accepted=False)], 0, id="it came late"
        ),
        pytest.param(30.0, [Presented("r0", "publish", "m", "t1", 12.0, accepted=None)], 0, id="no answer"),
        pytest.param(
            30.0, [Presented("r0", "publish", "m", "t3", 12.0, accepted=False)], 1, id="another lease"
        ),
    ],
)
def test_a_lease_that_a_living_relay_forgot_is_no_faults_doing(
    last_words: float, presented: list[Presented], wrong: int
) -> None:
    told = replace(TWICE, presented=presented, last_words={"r0": last_words})
    assert unexplained(LAPSED, told, fault("kill_relay")) == wrong


@pytest.mark.parametrize(("began", "ended"), [(1.0, 9.9), (12.1, 14.0)])
def test_a_fault_explains_only_what_it_fell_upon(began: float, ended: float) -> None:
    assert unexplained(FAILED, TWICE, fault("cut_broker", began, ended)) == 1
    assert unexplained(FAILED, TWICE, fault("cut_broker", began, ended), fault("cut_broker")) == 0


def test_under_each_lease_a_message_is_sent_once() -> None:
    once = RelayRecord(CLAIMS, sent={"m": 1})
    trail = [LEASED, replace(PUBLISHED, old_token="t1")]
    assert unexplained(trail, once, fault("cut_broker")) == 0
    assert unexplained(trail, replace(once, sent={"m": 3}), fault("cut_broker")) == 2
    assert unexplained(trail, once, fault("cut_broker"), stored=3) == 2
    assert unexplained(FAILED, replace(TWICE, sent={"m": 4}), fault("cut_broker")) == 2


def test_what_was_given_back_had_not_been_sent() -> None:
    told = replace(TWICE, presented=[replace(FAIL, write="release")])
    assert unexplained(FAILED, told, fault("cut_broker")) == 1


def verdict(times: int, broken: list[Broken], stray: int) -> Verdict:
    """Of a good run, but that each of its messages was sent so often and is in the broker so often."""
    ids = "a1 u1 a2 a3"
    sent = dict.fromkeys(ids.split(), times)
    told = replace(GOOD.told, sent=sent)
    every = [each for _ in range(times) for each in seen(ids)]
    arrived = {"live": every}
    evidence: Evidence = replace(GOOD, told=told, stored=every, arrived=arrived, broken=broken)
    return classify(evidence, lock_ttl=TTL, stalls=stray)


def test_a_relay_that_sends_everything_thrice_fails_its_run() -> None:
    broken = [fault(kind, 0.0, 100.0) for kind in KINDS]
    thrice = verdict(3, broken, stray=7)
    assert thrice.wrong.keys() == {"repeated"}
    assert (thrice.duplicates, thrice.duplicates_allowed, len(thrice.repeated)) == (8, 7, 8)
    assert verdict(3, broken, stray=8).good
    assert verdict(1, [], stray=0).good


def test_the_bound_is_in_the_report_and_in_the_summary() -> None:
    result = Result(
        Plan(seed=1, broker="nats", seconds=0.0, ordered=True), 0.0, verdict=verdict(3, [], stray=7)
    )
    assert not result.good
    assert "PROBLEM repeated: a1" in report.table(result)
    shown = report.figures(result)
    assert (shown["duplicates, at most"], shown["sent again, unexplained"]) == (7, 8)
    found = summary([result], seed=1, seconds=1.0, good=False)
    assert (found["duplicates"], found["duplicates_allowed"]) == (8, 7)
    assert (found["sent_again_unexplained"], found["repeated"]) == (8, 8)


def test_what_stalls_may_cost_grows_with_the_run_and_is_little_in_a_short_one() -> None:
    assert [stalls(seconds) for seconds in (5.0, 30.0, 61.0, 299.0, 3600.0)] == [4, 4, 8, 20, 244]
    assert stalls(3600.0, calm=True) == 0


def test_the_recorded_run_is_within_it() -> None:
    saved = json.loads(page.RUN.read_text(encoding="utf-8"))
    for run in saved["runs"]:
        assert run["figures"]["sent again, unexplained"] <= stalls(run["seconds"])


def test_a_fault_lasts_a_moment_longer_than_it_takes_the_first_relay_to_work_again() -> None:
    plan = Plan(seed=1, broker="nats", seconds=0.0, ordered=True)
    deeds = [
        Deed("cut_broker", 3.0, 4.0, 5.9, True, "", resumed=5.0),
        Deed("kill_relay", 7.0, 8.0, None, False, "", silent="nobody"),
    ]
    assert broken_by(Result(plan, 2.0, deeds=deeds)) == [
        Broken(STARTING, 0.0, 3.0), Broken("cut_broker", 3.0, 6.0), Broken("kill_relay", 7.0, 9.0),
    ]  # fmt: skip


def test_what_a_relay_tells_is_read_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "asked.jsonl")
    account, other = Account(journal, "r0.0"), Account(journal, "r1.0")
    row, token, lost, earlier = (UUID(int=number) for number in range(1, 5))
    account.claims(token)
    first = account.sends([row, lost])
    other.sends([row])
    account.acknowledged(first, [lost])
    answered = account.presents("publish", {token: [row, lost], earlier: [row]})
    account.hears(answered, [(lost, token), (row, earlier)])
    account.presents("undo_claim", {token: ()})
    told = relay_record.read(journal.read(), [{"relay": "r1.0", "at": 1e12}, {"at": 1e13}])
    assert (told.claims[str(token)].relay, told.sent) == ("r0.0", {str(row): 2, str(lost): 1})
    assert [mark.relay for mark in told.acknowledged[str(row)]] == ["r0.0"]
    assert str(lost) not in told.acknowledged
    assert [(each.write, each.row, each.token, each.accepted) for each in told.presented] == [
        ("publish", str(row), str(token), True), ("publish", str(lost), str(token), False),
        ("publish", str(row), str(earlier), False), ("undo_claim", None, str(token), None),
    ]  # fmt: skip
    assert told.last_words["r1.0"] == 1e12
