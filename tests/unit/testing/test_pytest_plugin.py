"""The fixtures, in a project of a user's own; and nothing at all in one that has not asked for them."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

INI = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
CONFTEST = 'pytest_plugins = ["outbox_core.testing.pytest_plugin"]\n'
TESTS = """
import asyncio
from datetime import timedelta

import pytest

from outbox_core import Message
from outbox_core.testing import MemoryOutbox, RecordingDispatcher, VirtualClock


@pytest.fixture
def outbox_table():
    return "shop.orders_outbox"


def test_unit(memory_outbox, outbox_clock, recording_dispatcher):
    async def scene():
        async with memory_outbox.transaction() as tx:
            await memory_outbox.enqueue(tx, Message("shop.cart.left.v1", 1, delay=timedelta(hours=1)))
        assert await memory_outbox.drain() == []
        outbox_clock.advance(hours=1)
        await memory_outbox.drain()

    asyncio.run(scene())
    assert str(memory_outbox.table) == "shop.orders_outbox"
    recording_dispatcher.assert_published("shop.**")


def test_each_test_has_its_own(memory_outbox, recording_dispatcher):
    memory_outbox.assert_not_enqueued()
    recording_dispatcher.assert_not_published()


def test_integration_without_an_address(drain_outbox):
    raise AssertionError("not reached")
"""


def pytest_run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_a_project_that_asks_has_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_shop.py").write_text(TESTS)
    run = pytest_run(tmp_path, "-q", "-W", "error")
    assert "2 passed, 1 error" in run.stdout, run.stdout
    assert "define a fixture outbox_dsn that returns its postgresql:// URL" in run.stdout


def test_a_project_that_does_not_ask_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "test_none.py").write_text(
        "import sys\n\n\ndef test_none():\n    assert 'outbox_core' not in sys.modules\n"
    )
    run = pytest_run(tmp_path, "-q")
    assert "1 passed" in run.stdout, run.stdout
    assert not [entry for entry in entry_points(group="pytest11") if entry.value.startswith("outbox")]


def test_the_kit_itself_needs_no_pytest() -> None:
    program = "import sys, outbox_core.testing; print(sorted({'pytest', 'sqlalchemy', 'fastapi'} & set(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["memory_outbox", "outbox_clock", "recording_dispatcher", "drain_outbox"])
def test_the_fixtures_say_what_they_are(name: str) -> None:
    from outbox_core.testing import pytest_plugin

    fixture = getattr(pytest_plugin, name)
    assert fixture.__doc__
