"""Every benchmark: where its script is and about how long it takes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """How long a run is: each benchmark has its sizes for each."""

    SMOKE = "smoke"
    """Seconds: shows that the script works, and nothing else."""
    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True)
class Benchmark:
    """One script. Seconds are those of a quiet machine with two cores, whose servers and peers are installed."""

    module: str
    title: str
    """The name of its section."""
    smoke: int
    quick: int
    full: int

    def seconds(self, mode: Mode) -> int:
        return {Mode.SMOKE: self.smoke, Mode.QUICK: self.quick, Mode.FULL: self.full}[mode]


BENCHMARKS = {
    "enqueue": Benchmark("benchmarks.enqueue", "enqueue", 4, 22, 150),
    "hot_path": Benchmark("benchmarks.hot_path", "hot path", 2, 6, 165),
    "drain": Benchmark("benchmarks.drain", "drain", 7, 49, 270),
    "long_drain": Benchmark("benchmarks.long_drain", "long drain", 4, 14, 207),
    "peers": Benchmark("benchmarks.peers.beside", "peers", 15, 56, 400),
    "brokers": Benchmark("benchmarks.brokers", "brokers", 20, 44, 226),
    "latency": Benchmark("benchmarks.latency", "commit to dispatcher", 8, 29, 282),
    "claim_cost": Benchmark("benchmarks.claim_cost", "claim", 18, 45, 1000),
    "scale": Benchmark("benchmarks.scale", "scale", 5, 20, 129),
    "cleaner": Benchmark("benchmarks.cleaner", "cleaner", 5, 13, 117),
}


def listing(names: list[str]) -> str:
    """A line for each, with about how long it takes in each form."""
    lines = [f"{'':12}{'smoke':>8}{'quick':>8}{'full':>8}"]
    for name in names:
        lines.append(f"{name:12}" + "".join(f"{BENCHMARKS[name].seconds(mode):6} s" for mode in Mode))
    total = {mode: sum(BENCHMARKS[name].seconds(mode) for name in names) for mode in Mode}
    lines.append(f"{'in all':12}" + "".join(f"{total[mode]:6} s" for mode in Mode))
    return "\n".join(lines)
