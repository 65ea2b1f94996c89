"""``tune_gc``, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

from outbox_core.cli.process import tune_gc
from outbox_core.relay.process import spare_the_collector

_PROGRAM = """
import gc
from outbox_core.cli.process import tune_gc
before = gc.get_threshold()
tune_gc()
assert gc.isenabled() and gc.get_freeze_count() > 0
assert gc.get_threshold()[1:] == before[1:]

class Cycle:
    def __init__(self):
        self.me = self

freed = 0
def count(phase, info):
    global freed
    freed += info.get("collected", 0)
gc.callbacks.append(count)
for _ in range(3 * gc.get_threshold()[0]):
    Cycle()
assert freed > gc.get_threshold()[0], freed
print(gc.get_threshold()[0] / before[0])
"""


def test_the_collector_runs_less_often_and_still_frees_cycles() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert float(ran.stdout) > 10


def test_the_earlier_import_path_works() -> None:
    assert spare_the_collector is tune_gc
