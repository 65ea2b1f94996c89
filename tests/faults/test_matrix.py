"""What counts as proof of a row of the matrix: every kind, on every broker of a long run; what cannot be had, apart."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults import page
from tests.faults.__main__ import cautions, has_matrix, parsed
from tests.faults.kinds import KINDS
from tests.faults.matrix import Fate, Proof, Ran, Standing, absent_rows, gaps, judge, latest, table
from tests.faults.plan import BROKERS, Broker
from tests.faults.rows import ROWS, Row
from tests.faults.summary import summary
from tests.revision import last_changed

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


def test_moments_to_die_at_are_asked_for_with_every_broker_of_the_long_form_alone() -> None:
    row = Row(1, "relay killed", points=("claim.before",), tests=("f.py::test",))
    both: tuple[Broker, ...] = ("nats", "amqp")

    def gaps_of(felt: set[tuple[str, Broker]], brokers: tuple[Broker, ...]) -> tuple[str, ...]:
        return judge(row, row.tests, felt, {}, RAN, brokers=brokers).gaps

    assert gaps_of(set(), ()) == ()
    assert gaps_of(set(), both) == ("claim.before was not felt",)
    assert gaps_of({("claim.before", "nats")}, both) == ("claim.before was not felt on amqp",)
    assert gaps_of({("claim.before", "nats"), ("claim.before", "amqp")}, both) == ()


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


SOME_SKIPPED = [
    Ran("f.py::test[a]", Fate.PASSED),
    Ran("f.py::test[b]", Fate.SKIPPED, "not root"),
    Ran("f.py::test[c]", Fate.SKIPPED, "no compiler"),
]


def test_one_test_that_passed_does_not_hide_others_that_were_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    skipped = ("f.py::test[b]: not root", "f.py::test[c]: no compiler")
    lenient = judged(EVERYWHERE, BROKERS, ran=SOME_SKIPPED)
    assert (lenient.standing, lenient.absent, lenient.gaps) == (Standing.IN_PART, skipped, ())
    monkeypatch.setenv("OUTBOX_TEST_REQUIRE", "all")
    strict = judged(EVERYWHERE, BROKERS, ran=SOME_SKIPPED)
    assert (strict.standing, strict.absent, strict.gaps) == (Standing.NOT_SHOWN, (), skipped)


def test_a_kind_that_must_be_had_is_a_gap_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    felt: set[tuple[str, Broker]] = {("kill", broker) for broker in BROKERS}
    missing = {"freeze": "no compiler"}
    assert judged(felt, BROKERS, missing).absent == ("freeze: no compiler",)
    monkeypatch.setenv("OUTBOX_TEST_REQUIRE", "all")
    proof = judged(felt, BROKERS, missing)
    assert (proof.standing, proof.absent, proof.gaps) == (Standing.NOT_SHOWN, (), ("freeze: no compiler",))
    assert gaps([proof]) == ["row 1: freeze: no compiler"]


def record(folder: Path, name: str, **fates: str) -> Path:
    """What pytest writes of a run in which these tests passed, failed or were skipped."""
    inside = {"passed": "", "failed": "<failure/>", "skipped": '<skipped message="not root"/>'}
    cases = "".join(
        f'<testcase file="f.py" name="{test}">{inside[fate]}</testcase>' for test, fate in fates.items()
    )
    file = folder / name
    file.write_text(f"<testsuite>{cases}</testsuite>")
    return file


def test_what_passed_at_the_second_try_only_leaves_a_trace(tmp_path: Path) -> None:
    first = record(tmp_path, "1.xml", test="failed", other="failed", steady="passed", skips="failed")
    second = record(tmp_path, "2.xml", test="passed", other="failed", skips="skipped")
    ran = {each.test: each for each in latest([first, second])}
    assert {test: (each.fate, each.second_try) for test, each in ran.items()} == {
        "f.py::test": (Fate.PASSED, True), "f.py::other": (Fate.FAILED, False),
        "f.py::steady": (Fate.PASSED, False), "f.py::skips": (Fate.FAILED, False),
    }  # fmt: skip
    proof = judged(EVERYWHERE, BROKERS, ran=[*ran.values()])
    assert (proof.standing, proof.second_try) == (Standing.SHOWN, ("f.py::test",))
    assert "at the second try: f.py::test" in table([proof])
    found = summary([], (), [proof, proof, judged(set())], seed=1, seconds=1.0, good=False)
    assert found["second_try"] == ["f.py::test"]
    assert summary([], (), [judged(EVERYWHERE)], seed=1, seconds=1.0, good=False)["second_try"] == []


def test_what_became_of_each_row_is_in_the_record_and_on_the_page(tmp_path: Path) -> None:
    proofs = [replace(judged(EVERYWHERE), row=ROWS[0]), replace(judged(set()), row=ROWS[1])]
    found = summary([], (), proofs, seed=1, seconds=1.0, good=False)
    assert found["matrix"] == {"1": "shown", "2": "NOT SHOWN"}
    kept = json.loads(page.RUN.read_text(encoding="utf-8"))
    file = tmp_path / "run.json"
    file.write_text(json.dumps(kept | {"matrix": found["matrix"], "second_try": ["f.py::test"]}))
    lines = page.matrix(file).splitlines()
    assert lines[0].endswith("| by broker | in the recorded run |")
    assert [line.split(" | ")[-1] for line in lines[2:5]] == ["shown |", "NOT SHOWN |", "not in it |"]
    assert "passed when they were run once more by themselves: `f.py::test`." in page.recorded(file)
    file.write_text(json.dumps({name: each for name, each in kept.items() if name != "matrix"}))
    assert page.matrix(file).splitlines()[0].endswith("| by broker |")


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        parsed(words)
    assert end.value.code == 2
    return capsys.readouterr().err


def test_a_soak_that_ends_with_its_warm_up_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for seconds in ("0", "179.9", "nan"):
        assert f"--soak {seconds} is too short" in refused(capsys, "--soak", seconds)
    assert parsed(["--soak", "180"]).soak == 180.0


def test_a_soak_without_an_end_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--soak inf would never end" in refused(capsys, "--soak", "inf")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"..F. 1 failed", "syntax error"),
        (b"", "no element found"),
        (b"\xff\xfe", "codec can't decode"),
        (b"<svg/>", "it begins with <svg>"),
    ],
)
def test_a_record_that_is_none_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes, reason: str
) -> None:
    record = tmp_path / "record.xml"
    record.write_bytes(content)
    told = refused(capsys, "--records", str(record))
    assert f"--records {record} is no JUnit record: " in told
    assert reason in told
    assert "--junitxml" in told


def test_a_record_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    here, nowhere = tmp_path / "here.xml", tmp_path / "nowhere.xml"
    here.write_text("<testsuite/>")
    assert f"no such records: {nowhere};" in refused(capsys, "--records", str(here), str(nowhere))
    assert parsed(["--records", str(here)]).records == [here]
    os.utime(here, (changed := last_changed().at - 1, changed))
    assert f"was changed: {here}; run the tests again" in refused(capsys, "--records", str(here))


def test_the_matrix_needs_every_kind() -> None:
    every = ",".join(reversed(list(KINDS)))
    assert has_matrix(parsed([]))
    assert has_matrix(parsed(["--kinds", every]))
    assert not has_matrix(parsed(["--kinds", "kill_relay"]))
    assert not has_matrix(parsed(["--no-matrix"]))
    assert not has_matrix(parsed(["--soak", "600"]))
    (caution,) = cautions(parsed(["--kinds", "kill_relay"]))
    assert "matrix is left out" in caution
    assert cautions(parsed(["--kinds", every])) == []


@pytest.mark.parametrize("words", [["--broker", "nats"], ["--mode", "ordered"]])
def test_part_of_a_long_run_says_that_it_cannot_reach_the_counts(words: list[str]) -> None:
    (caution,) = cautions(parsed(["--long", *words]))
    assert "counts of a whole long run cannot be reached" in caution
    assert cautions(parsed(["--long"])) == cautions(parsed(words)) == []


def test_every_row_has_something_to_show() -> None:
    assert [row.number for row in ROWS] == list(range(1, 34))
    assert all(row.kinds or row.tests or row.by_broker for row in ROWS)


def test_kinds_that_name_none_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--kinds names none: leave it out for all of them" in refused(capsys, "--kinds", "")
