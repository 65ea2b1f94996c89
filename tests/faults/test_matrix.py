"""What counts as proof of a row of the matrix: every kind, on every broker of a long run; what cannot be had, apart."""

from __future__ import annotations

import pytest

from tests.faults.matrix import Fate, Proof, Ran, Standing, absent_rows, judge, table
from tests.faults.plan import BROKERS, Broker
from tests.faults.rows import ROWS, Row

ROW = Row(1, "relay killed", ("kill", "freeze"), ("f.py::test",))
RAN = [Ran("f.py::test", Fate.PASSED)]
SKIPPED = [Ran("f.py::test", Fate.SKIPPED, "not root")]
EVERYWHERE: set[tuple[str, Broker]] = {(kind, broker) for kind in ROW.kinds for broker in BROKERS}


@pytest.fixture(autouse=True)
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing on a machine is said, not failed."""
    monkeypatch.delenv("OUTBOX_TEST_REQUIRE", raising=False)


def judged(
    felt: set[tuple[str, Broker]],
    brokers: tuple[Broker, ...] = (),
    missing: dict[str, str] | None = None,
    ran: list[Ran] | None = None,
) -> Proof:
    return judge(ROW, ROW.tests, felt, missing or {}, RAN if ran is None else ran, brokers=brokers)


def test_in_the_short_form_any_broker_will_do() -> None:
    assert judged({("kill", "nats"), ("freeze", "kafka")}).standing is Standing.SHOWN
    assert judged({("kill", "nats")}).gaps == ("freeze was not felt",)


def test_in_the_long_form_every_kind_is_felt_on_every_broker_of_the_run() -> None:
    assert judged(EVERYWHERE, BROKERS).standing is Standing.SHOWN
    proof = judged(EVERYWHERE - {("kill", "amqp"), ("kill", "nats")}, BROKERS)
    assert proof.standing is Standing.NOT_SHOWN
    assert proof.gaps == ("kill was not felt on nats, amqp",)
    assert proof.shown == ("freeze", "f.py::test")
    assert judged({(kind, "nats") for kind in ROW.kinds}, ("nats",)).good


def test_what_a_machine_lacks_is_counted_apart() -> None:
    nowhere = dict.fromkeys(ROW.kinds, "no compiler")
    whole = judged(EVERYWHERE, BROKERS)
    in_part = judged({("kill", broker) for broker in BROKERS}, BROKERS, {"freeze": "no compiler"})
    none = judged(set(), BROKERS, nowhere, SKIPPED)
    failed = judged(EVERYWHERE, BROKERS, ran=[Ran("f.py::test", Fate.FAILED)])

    assert [proof.standing for proof in (whole, in_part, none, failed)] == [
        Standing.SHOWN, Standing.IN_PART, Standing.ABSENT, Standing.NOT_SHOWN,
    ]  # fmt: skip
    assert [proof.good for proof in (whole, in_part, none, failed)] == [True, True, True, False]
    assert absent_rows([whole, in_part, none, failed]) == 2
    assert "freeze: no compiler" in table([in_part])


def test_what_was_felt_on_one_broker_is_not_absent_there() -> None:
    proof = judged(EVERYWHERE, BROKERS, {"kill": "no compiler"})
    assert proof.standing is Standing.SHOWN


def test_a_test_that_must_run_is_a_gap_when_it_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_TEST_REQUIRE", "all")
    assert judged(EVERYWHERE, BROKERS, ran=SKIPPED).standing is Standing.NOT_SHOWN


def test_every_row_has_something_to_show() -> None:
    assert [row.number for row in ROWS] == list(range(1, 34))
    assert all(row.kinds or row.tests or row.by_broker for row in ROWS)
