"""What a message costs in the relay's own Python, apart from the database and its driver.

    python -m benchmarks.hot_path [--quick | --smoke] [--json FILE] [--into FILE] [--dsn DSN]

The relay claims rows that are in memory already and delivers them to a dispatcher that does nothing. Where valgrind is
installed the instructions of a message are counted too: they are the same on every day and beside every load.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import common, running
from benchmarks.catalogue import Mode
from benchmarks.common import Place
from benchmarks.figures import Figure, Section, figure
from benchmarks.processes import child
from benchmarks.turns import rotated

MODULE = "benchmarks.hot_path_process"
WRITING = {
    "build": "to build and validate a Message",
    "enqueue": "to enqueue one that is ready, before the driver has it",
    "insert": "the same for a hand-written INSERT",
}
"""What of a writer's part is counted."""
KEYS = {"": 0, "_keyed": 1000}
TEXTS = {"": "without keys", "_keyed": "in 1,000 keys"}


@dataclass(frozen=True)
class Size:
    """How long a run is. Instructions are the difference of two runs that make the same rows and deliver some or all
    of them, so that only those of the delivery are left."""

    rows: int
    repeats: int
    counted: tuple[int, int] | None


SIZES = {
    Mode.SMOKE: Size(2_000, 1, None),
    Mode.QUICK: Size(40_000, 3, None),
    Mode.FULL: Size(200_000, 5, (2_000, 6_000)),
}


async def processor_time(size: Size) -> dict[str, list[float]]:
    """Microseconds a row in each round, without keys and with them by turns."""
    found: dict[str, list[float]] = {name: [] for name in KEYS}
    for number in range(size.repeats):
        for name in rotated(list(KEYS), number):
            result = await child(MODULE, {"rows": size.rows, "keys": KEYS[name]})
            found[name].append(result["cpu"] / size.rows * 1e6)
    return found


async def instructions(valgrind: str, module: str, order: dict[str, object]) -> int:
    """Of a whole process, as callgrind counts them."""
    with tempfile.TemporaryDirectory() as folder:
        process = await asyncio.create_subprocess_exec(
            valgrind, "--tool=callgrind", f"--callgrind-out-file={folder}/out", sys.executable, "-m", module,
            json.dumps(order),
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, told = await asyncio.wait_for(process.communicate(), 600)
        found = re.search(r"^(?:summary|totals): (\d+)", await asyncio.to_thread(_read, folder), re.MULTILINE)
    if process.returncode != 0 or found is None:
        raise RuntimeError(f"callgrind failed with {process.returncode}:\n{told.decode()[-2000:]}")
    return int(found[1])


def _read(folder: str) -> str:
    return (Path(folder) / "out").read_text()


async def measure(size: Size) -> Section:
    figures: list[Figure] = []
    for name, each in (await processor_time(size)).items():
        figures.append(
            figure(
                f"hot_path_us_per_row{name}",
                f"a message {TEXTS[name]}, processor time",
                each,
                unit="µs",
                at_most=15.0,
            )
        )
    valgrind = shutil.which("valgrind")
    if valgrind is not None and size.counted is not None:
        fewer, more = size.counted

        async def counted(name: str, text: str, module: str, order: dict[str, object]) -> Figure:
            counts = [await instructions(valgrind, module, order | {"rows": rows}) for rows in (fewer, more)]
            return figure(name, text, [(counts[1] - counts[0]) / (more - fewer)], unit="instructions")

        for name, keys in KEYS.items():
            counting = f"hot_path_instructions_per_row{name}", f"a message {TEXTS[name]}", MODULE
            figures.append(await counted(*counting, {"made": more, "keys": keys}))
        for what, text in WRITING.items():
            counting = f"{what}_instructions", text, "benchmarks.enqueue_process"
            figures.append(await counted(*counting, {"what": what}))
    notes = (
        f"{size.rows:,} rows of 300 bytes from memory, rounds: {size.repeats}; observers as in the drain.",
        "Instructions are counted by callgrind, in the full run and where valgrind is installed.",
    )
    return Section("hot path", figures, notes)


def bars(_: Mode) -> frozenset[str]:
    """The names of the figures that have a bar."""
    return frozenset(f"hot_path_us_per_row{name}" for name in KEYS)


def run(_: Place, mode: Mode) -> Section:
    return common.run(measure(SIZES[mode]))


if __name__ == "__main__":
    sys.exit(running.main(__doc__, "hot_path"))
