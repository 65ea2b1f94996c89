"""Break the product in known ways and see whether the tests notice.

    python -m tests.mutations [--only NAME]... [--json FILE] [--markdown]

Works on a copy of the tree as it is, uncommitted changes included. The tests must pass on the copy as it is; then each
mutation is tried by itself. The exit code is 0 only when every one is caught by every test that it names.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.mutations import judging, page
from tests.mutations.catalogue import MUTATIONS
from tests.mutations.judging import Verdict
from tests.mutations.mutation import DoesNotApply, Mutation
from tests.mutations.tree import Tree, copied
from tests.revision import revision
from tests.services.postgres import PostgresServer
from tests.services.session import Services
from tests.writable import refuse_unwritable

WHOLE_LIMIT_SECONDS = 900.0
_TAIL_LINES = 40


def main(arguments: argparse.Namespace) -> int:
    chosen = [each for each in MUTATIONS if not arguments.only or each.name in arguments.only]
    began, services = time.monotonic(), Services()
    date, made_at = datetime.now(UTC), revision()  # of the copy, whatever becomes of the tree meanwhile
    try:
        with copied() as tree:
            for mutation in chosen:
                mutation.checked_in(tree.root)
            tree.check_imports()
            postgres = services.shared(PostgresServer).address
            if not _whole_passes(tree, chosen, postgres):
                return 1
            verdicts = [_tried(tree, mutation, postgres) for mutation in chosen]
    except DoesNotApply as error:
        _tell(str(error))
        return 1
    finally:
        services.close()
    seconds = time.monotonic() - began
    caught = sum(verdict.caught for verdict in verdicts)
    _tell(f"\n{page.markdown(verdicts) if arguments.markdown else page.table(verdicts)}")
    _tell(f"\n{caught} of {len(verdicts)} mutations caught, {seconds:.0f} s")
    if arguments.json:
        found = page.figures(verdicts, seconds, made_at, date)
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if caught == len(verdicts) else 1


def _whole_passes(tree: Tree, chosen: Sequence[Mutation], postgres: str) -> bool:
    tests = list(dict.fromkeys(test for mutation in chosen for test in mutation.tests))
    session = judging.run(tree, tests, postgres=postgres, limit=WHOLE_LIMIT_SECONDS)
    flaws = judging.flaws_of_whole([judging.SMOKE, *tests], session)
    _tell(f"{'whole':<36} {len(session.ran)} tests, {session.seconds:.1f} s")
    if flaws:
        _tell("\n".join(session.output.splitlines()[-_TAIL_LINES:]))
        _tell("\nnothing was broken yet, and yet:\n" + "\n".join(f"  {flaw}" for flaw in flaws))
    return not flaws


def _tried(tree: Tree, mutation: Mutation, postgres: str) -> Verdict:
    with tree.broken_by(mutation):
        session = judging.run(tree, mutation.tests, postgres=postgres)
    verdict = judging.judged(mutation, session)
    by = ", ".join(dict.fromkeys(page.sentence(each.test) for each in verdict.caught_by))
    _tell(
        f"{mutation.name:<36} {'caught' if verdict.caught else 'NOT CAUGHT'}, {session.seconds:.1f} s: {by}"
    )
    if not verdict.caught:
        _tell("\n".join(session.output.splitlines()[-_TAIL_LINES:]))
        _tell("\n".join(f"    {flaw}" for flaw in verdict.flaws))
    return verdict


def _tell(text: str) -> None:
    print(text, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description="Break it, and be caught.")
    names = [mutation.name for mutation in MUTATIONS]
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help=f"one or more of: {', '.join(names)}"
    )
    parser.add_argument("--json", type=Path, help="also write the verdicts to a file")
    parser.add_argument("--markdown", action="store_true", help="print the last table as Markdown")
    arguments = parser.parse_args()
    refuse_unwritable(parser, arguments, "json")
    return arguments


if __name__ == "__main__":
    sys.exit(main(_arguments()))
