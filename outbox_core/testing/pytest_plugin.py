"""Fixtures for pytest. Nothing loads them unasked: a project that wants them says so in its top ``conftest.py``.

    pytest_plugins = ["outbox_core.testing.pytest_plugin"]

``memory_outbox``, ``outbox_clock`` and ``recording_dispatcher`` are for unit tests and belong together: the outbox uses
the other two. ``drain_outbox`` is for integration tests, and needs ``outbox_dsn``. Override ``outbox_table`` and
``outbox_dsn`` with fixtures of the same name. No fixture is asynchronous, so any runner of asynchronous tests will do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest

from outbox_core.testing.clock import VirtualClock
from outbox_core.testing.draining import drain
from outbox_core.testing.memory import MemoryOutbox
from outbox_core.testing.recording import RecordingDispatcher

if TYPE_CHECKING:
    from outbox_core.testing.messages import SeenMessage


@pytest.fixture
def outbox_table() -> str:
    """The table of the other fixtures: ``outbox``, unless overridden."""
    return "outbox"


@pytest.fixture
def outbox_clock() -> VirtualClock:
    """The clock of ``memory_outbox``."""
    return VirtualClock()


@pytest.fixture
def recording_dispatcher() -> RecordingDispatcher:
    """What ``memory_outbox`` and ``drain_outbox`` deliver to."""
    return RecordingDispatcher()


@pytest.fixture
def memory_outbox(
    outbox_table: str, outbox_clock: VirtualClock, recording_dispatcher: RecordingDispatcher
) -> MemoryOutbox:
    """An empty outbox in memory."""
    return MemoryOutbox(outbox_table, clock=outbox_clock, dispatcher=recording_dispatcher)


@pytest.fixture
def outbox_dsn() -> str:
    """The address of the test database. To be overridden."""
    raise pytest.UsageError(
        "drain_outbox needs to know the test database: define a fixture outbox_dsn that returns its postgresql:// URL"
    )


@pytest.fixture
def drain_outbox(
    outbox_dsn: str, outbox_table: str, recording_dispatcher: RecordingDispatcher
) -> Callable[[], Awaitable[list[SeenMessage]]]:
    """``await drain_outbox()`` delivers what is due in the table to ``recording_dispatcher``; as `drain`."""
    return partial(drain, outbox_dsn, outbox_table, dispatcher=recording_dispatcher)
