"""The commands the documents give are the ones CI runs, and the tables name what there is."""

from __future__ import annotations

import re

from tests.docs import markdown

TEST_COMMAND = "python -m pip install nox && python -m nox -s tests"


def read(path: str) -> str:
    return (markdown.REPOSITORY / path).read_text(encoding="utf-8")


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert TEST_COMMAND in [block.text for block in markdown.blocks(read("README.md"))]
    assert TEST_COMMAND in [line.strip() for line in read(".ci/run").splitlines()]


def sessions() -> set[str]:
    return set(re.findall(r"^@nox\.session.*\ndef (\w+)\(", read("noxfile.py"), re.MULTILINE))


def test_contributing_lists_every_session() -> None:
    table = read("CONTRIBUTING.md").partition("| session |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == sessions()


def test_ci_runs_every_session_but_the_long_one() -> None:
    commands = re.findall(r"nox -s ((?:[a-z][\w.-]* ?)+)", read(".ci/run"))
    named = {word.partition("-")[0] for command in commands for word in command.split()}
    assert named == sessions() - {"mutations"}


def test_the_time_budget_adds_up() -> None:
    table = read("CONTRIBUTING.md").partition("| part | minutes |")[2].partition("\n\n")[0]
    minutes = [int(number) for number in re.findall(r"\| (\d+) \|$", table, re.MULTILINE)]
    (total,) = (int(number) for number in re.findall(r"\| \*\*(\d+)\*\* \|$", table, re.MULTILINE))
    assert sum(minutes) == total <= 30
