"""Run many seeds: ``python -m tests.simulation --seeds 2000``; one of them: ``--seed 17 --trace``."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter

from tests.simulation.world import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one alone")
    parser.add_argument("--trace", action="store_true", help="print what happened")
    arguments = parser.parse_args()
    if arguments.seeds < 1:
        parser.error(f"--seeds {arguments.seeds} would show nothing: give at least 1")
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.seed is not None:
        seeds = range(arguments.seed, arguments.seed + 1)
    counts: Counter[str] = Counter()
    failed: list[int] = []
    began = time.monotonic()
    for seed in seeds:
        try:
            record = run(seed)
        except Exception:
            failed.append(seed)
            print(f"seed {seed}:")
            traceback.print_exc()
            continue
        counts += record.counts
        if arguments.trace:
            print("\n".join(record.trace))
        if record.violations:
            failed.append(seed)
            print(f"seed {seed}:", *record.violations[:5], sep="\n  ", flush=True)
    print(f"{len(seeds)} seeds in {time.monotonic() - began:.1f} s, {len(failed)} failed: {failed[:50]}")
    for name, count in sorted(counts.items()):
        print(f"{count:>9} {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
