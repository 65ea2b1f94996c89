"""The mutations and their verdicts, for people and for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.mutations.catalogue import MUTATIONS
from tests.mutations.judging import Verdict
from tests.mutations.mutation import Mutation
from tests.revision import Revision, at_commit

RECORD = Path(__file__).with_name("results") / "latest.json"


def documented() -> str:
    """The table of the documentation, with what the run that is kept in the repository said of each."""
    saved = recorded()
    found = {each["name"]: each["caught"] for each in saved["verdicts"]}
    caught = sum(found.get(mutation.name, False) for mutation in MUTATIONS)
    made = f"{datetime.fromisoformat(saved['date']):%Y-%m-%d}, {at_commit(saved)}"
    lines = [
        f"{made}, in {saved['seconds'] / 60:.0f} minutes on two cores: {caught} of {len(MUTATIONS)} were caught.",
        "",
        "| what is broken | the promise | to be noticed by | |",
        "|---|---|---|---|",
    ]
    for mutation in MUTATIONS:
        by = "<br>".join(f"`{_file(test)}` {sentence(test)}" for test in mutation.tests)
        verdict = {True: "caught", False: "**not caught**", None: "**not tried**"}[found.get(mutation.name)]
        lines.append(f"| **{mutation.name}**: {mutation.breaks} | {mutation.promise} | {by} | {verdict} |")
    return "\n".join(lines)


def recorded() -> dict[str, Any]:
    """The run that is kept in the repository."""
    saved: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return saved


def sentence(test: str) -> str:
    """A test's name as the sentence that it is, without its parameters."""
    return test.partition("[")[0].rpartition("::")[2].removeprefix("test_").replace("_", " ")


def table(verdicts: Sequence[Verdict]) -> str:
    lines = [f"  {_verdict(each):<11}{each.mutation.name:<36} {each.mutation.promise}" for each in verdicts]
    return "\n".join(lines)


def markdown(verdicts: Sequence[Verdict]) -> str:
    lines = ["| mutation | verdict | seconds | caught by |", "|---|---|---:|---|"]
    for each in verdicts:
        said = {sentence(ran.test): ran.reason for ran in reversed(each.caught_by)}
        by = "<br>".join(f"{test}: {reason}".replace("|", "\\|") for test, reason in said.items())
        lines.append(f"| {each.mutation.name} | {_verdict(each)} | {each.seconds:.1f} | {by} |")
    return "\n".join(lines)


def figures(verdicts: Sequence[Verdict], seconds: float, made_at: Revision, date: datetime) -> dict[str, Any]:
    return {
        **asdict(made_at),
        "date": date.isoformat(timespec="seconds"),
        "mutations": len(verdicts),
        "caught": sum(each.caught for each in verdicts),
        "seconds": round(seconds, 1),
        "verdicts": [_figures(each.mutation, each) for each in verdicts],
    }


def _figures(mutation: Mutation, verdict: Verdict) -> dict[str, Any]:
    return {
        "name": mutation.name,
        "promise": mutation.promise,
        "file": mutation.file,
        "caught": verdict.caught,
        "seconds": round(verdict.seconds, 1),
        "caught_by": [{"test": ran.test, "reason": ran.reason} for ran in verdict.caught_by],
        "flaws": list(verdict.flaws),
    }


def _verdict(verdict: Verdict) -> str:
    return "caught" if verdict.caught else "NOT CAUGHT"


def _file(test: str) -> str:
    return test.partition("::")[0].removeprefix("tests/")
