"""Every benchmark, one after the other on one PostgreSQL, into one JSON.

    python -m benchmarks [--quick | --smoke] [--only drain,peers] [--json FILE] [--into FILE] [--plots DIR] [--dsn DSN]
    python -m benchmarks --list

Prints a Markdown table for each and, at the end, which bars were met. Ends with 1 when a benchmark failed to run or a
figure could not be measured; a missed bar does not fail a run, for a busy machine misses bars too. `--smoke` runs
everything at a tiny size and judges nothing.

Ctrl-C ends a run with 130; what was measured until then is told and kept.

`--into` takes the sections that were measured now into a file that has others, so that a long run can be made in
pieces: each section says when, where and in which form it was measured.
"""

from __future__ import annotations

import sys

from benchmarks import running

if __name__ == "__main__":
    sys.exit(running.main(__doc__))
