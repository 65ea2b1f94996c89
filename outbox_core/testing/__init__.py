"""For the tests of applications and adapters: doubles that record and fail on demand, and suites for each contract.

`MemoryOutbox` and `drain` are for applications. The suites are in `outbox_core.testing.contracts`, and fixtures for
pytest in `outbox_core.testing.pytest_plugin`, which is the only module here that imports pytest.
"""

from outbox_core.testing.clock import VirtualClock
from outbox_core.testing.draining import drain
from outbox_core.testing.matching import matching
from outbox_core.testing.memory import MemoryOutbox
from outbox_core.testing.messages import SeenMessage
from outbox_core.testing.recording import RecordingBatchDispatcher, RecordingDispatcher

__all__ = [
    "MemoryOutbox",
    "RecordingBatchDispatcher",
    "RecordingDispatcher",
    "SeenMessage",
    "VirtualClock",
    "drain",
    "matching",
]
