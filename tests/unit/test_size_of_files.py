"""The relay is made of small files: one that grows past the limit is to be parted."""

from __future__ import annotations

from pathlib import Path

import outbox_core.relay

LINES = 300


def test_no_file_of_the_relay_is_longer_than_three_hundred_lines() -> None:
    files = list(Path(outbox_core.relay.__file__).parent.rglob("*.py"))
    lines = {file.name: len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    assert {"relay.py", "run.py", "lane.py"} <= lines.keys()
    assert {name: count for name, count in lines.items() if count > LINES} == {}
