"""A test run to be interrupted: starts the servers named in HELD_SERVERS, reports them to HELD_REPORT and waits.

Not collected by name: `test_interrupted_runs.py` runs it in a child process.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path

from tests.integration.services.kinds import KINDS
from tests.services.session import Services
from tests.services.watchdog import recorded


def test_hold_servers_until_the_run_is_ended(services: Services) -> None:
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(services.private(KINDS[name]))
            for name in os.environ["HELD_SERVERS"].split(",")
        ]
        report = {
            "folder": str(services.run.folder),
            "watchdog": services.run.watchdog_pid,
            "addresses": {server.name: server.address for server in servers},
            "processes": [[member.pid, member.started] for server in servers for member in server.processes],
            "recorded": [[root.pid, root.started] for root in recorded(services.run.folder)],
        }
        path = Path(os.environ["HELD_REPORT"])
        path.with_suffix(".part").write_text(json.dumps(report))
        path.with_suffix(".part").rename(path)
        assert not threading.Event().wait(170), "unreachable: this run is ended from outside"
