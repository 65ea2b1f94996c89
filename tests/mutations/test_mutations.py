"""The list of mutations is up to date with the source, and the judge of them can say no."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.mutations.catalogue import MUTATIONS
from tests.mutations.judging import SMOKE, Ran, Session, flaws_of_whole, judged
from tests.mutations.mutation import DoesNotApply, Mutation
from tests.mutations.page import recorded
from tests.mutations.tree import ROOT, Tree, copied

TEST = "tests/unit/test_it.py::test_it"
OTHER = "tests/unit/test_it.py::TestMore::test_more"
MUTATION = Mutation(
    name="example", breaks="All.", promise="None.", file="it.py", old="1", new="2", tests=(TEST, OTHER)
)
DELIVERS = Ran(SMOKE, "call", "passed", "")


def session(*ran: Ran, exit_code: int | None = 1) -> Session:
    return Session(exit_code, ran, 1.0, "")


def noticed(test: str, reason: str = "AssertionError: assert 1 == 2") -> Ran:
    return Ran(test, "call", "failed", reason)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_each_applies_to_the_present_source(mutation: Mutation) -> None:
    broken = mutation.checked_in(ROOT)
    assert mutation.new != mutation.old
    assert mutation.tests
    if mutation.file.endswith(".py"):
        ast.parse(broken)


def test_the_recorded_run_has_caught_each() -> None:
    """When it has not: ``python -m nox -s mutations -- --json tests/mutations/results/latest.json``."""
    caught = {each["name"] for each in recorded()["verdicts"] if each["caught"]}
    assert [mutation.name for mutation in MUTATIONS if mutation.name not in caught] == []


def test_each_has_a_name_of_its_own() -> None:
    assert [name for name, times in Counter(each.name for each in MUTATIONS).items() if times > 1] == []


def test_their_tests_exist() -> None:
    tests = sorted({test for mutation in MUTATIONS for test in mutation.tests} | {SMOKE})
    completed = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr


@pytest.mark.parametrize(("text", "times"), [("", 0), ("1 + 1", 2)])
def test_a_text_that_is_not_there_once_is_an_error(text: str, times: int) -> None:
    with pytest.raises(DoesNotApply, match=rf"^example: the text to replace is {times} times in it\.py"):
        MUTATION.applied_to(text)


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DoesNotApply, match=r"^example: there is no it\.py$"):
        MUTATION.checked_in(tmp_path)


def test_caught_by_every_test_that_it_names() -> None:
    verdict = judged(MUTATION, session(DELIVERS, noticed(f"{TEST}[a]"), noticed(OTHER)))
    assert verdict.caught
    assert [ran.test for ran in verdict.caught_by] == [f"{TEST}[a]", OTHER]


@pytest.mark.parametrize(
    ("second", "flaw"),
    [
        ((), "did not notice: it did not run"),
        ((Ran(OTHER, "call", "passed", ""),), "did not notice: call passed"),
        ((Ran(OTHER, "setup", "failed", "ImportError: x"),), "did not notice: setup failed ImportError: x"),
        ((Ran(OTHER, "setup", "skipped", "no server"),), "did not notice: setup skipped no server"),
        ((noticed(OTHER, "Failed: Timeout (>60.0s) from pytest-timeout."),), "did not notice: call failed"),
        ((noticed(f"{OTHER}_too"),), "did not notice: it did not run"),
    ],
    ids=["not run", "passed", "error", "skipped", "timeout", "another"],
)
def test_what_is_not_noticed_is_not_caught(second: tuple[Ran, ...], flaw: str) -> None:
    verdict = judged(MUTATION, session(DELIVERS, noticed(TEST), *second))
    assert not verdict.caught
    (said,) = verdict.flaws
    assert said.startswith(f"{OTHER} {flaw}")


@pytest.mark.parametrize("exit_code", [None, 0, 2, 3, 4, 5])
def test_a_run_that_did_not_end_with_a_failed_test_proves_nothing(exit_code: int | None) -> None:
    verdict = judged(MUTATION, session(DELIVERS, noticed(TEST), noticed(OTHER), exit_code=exit_code))
    assert verdict.flaws == (f"pytest ended with {exit_code} instead of 1",)


def test_a_product_that_does_nothing_any_more_proves_nothing() -> None:
    verdict = judged(MUTATION, session(noticed(SMOKE), noticed(TEST), noticed(OTHER)))
    assert verdict.flaws == ("a relay delivers nothing any more: too much is broken",)


def test_unbroken_each_test_must_run_and_pass() -> None:
    passed = Ran(TEST, "call", "passed", "")
    assert flaws_of_whole([TEST], session(passed, exit_code=0)) == []
    assert flaws_of_whole([TEST, OTHER], session(passed, exit_code=0)) == [f"{OTHER} did not run"]
    skipped = Ran(OTHER, "setup", "skipped", "no server")
    assert f"{OTHER} skipped: no server" in flaws_of_whole([OTHER], session(skipped, exit_code=0))
    assert flaws_of_whole([TEST], session(passed, exit_code=1)) == [
        "pytest ended with 1 on the unbroken copy"
    ]


def test_what_is_imported_is_the_copy_broken_and_whole_again() -> None:
    """Also in processes that do not start in it, and within the same second and the same size."""
    mutation = MUTATIONS[0]
    digit = Mutation(
        name="digit",
        breaks="A number.",
        promise="None.",
        file="outbox_core/relay/settings.py",
        old="HEARTBEATS: Final = 8",
        new="HEARTBEATS: Final = 7",
        tests=(TEST,),
    )
    with copied() as tree:
        tree.check_imports()
        assert (tree.root / mutation.file).read_bytes() == (ROOT / mutation.file).read_bytes()
        assert not (tree.root / ".venv").exists()
        assert _heartbeats(tree) == 8
        with tree.broken_by(digit):
            assert _heartbeats(tree) == 7
        assert _heartbeats(tree) == 8
        with pytest.raises(DoesNotApply), tree.broken_by(MUTATION):
            pass
    assert not tree.root.exists()


def _heartbeats(tree: Tree) -> int:
    statement = "from outbox_core.relay.settings import HEARTBEATS; print(HEARTBEATS)"
    completed = subprocess.run(
        [sys.executable, "-c", statement],
        cwd=tree.root.parent,
        env=tree.environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return int(completed.stdout)


@pytest.mark.parametrize("module", ["tests.mutations", "tests.faults.mutants"])
def test_a_record_that_cannot_be_written_is_refused_before_anything_is_broken(module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", module, "--json", "/nowhere/at/all.json"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "--json /nowhere/at/all.json cannot be written" in ended.stderr
