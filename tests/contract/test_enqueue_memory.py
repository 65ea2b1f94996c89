"""The in-memory double keeps the contract."""

from __future__ import annotations

import pytest

from tests.contract.concurrency import ConcurrencyContract
from tests.contract.idempotence import IdempotenceContract
from tests.contract.reading import ReadingContract
from tests.contract.sessions import MemorySessions
from tests.contract.writing import WritingContract

pytestmark = pytest.mark.asyncio


@pytest.fixture
def sessions() -> MemorySessions:
    return MemorySessions()


class TestWriting(WritingContract): ...


class TestIdempotence(IdempotenceContract): ...


class TestConcurrency(ConcurrencyContract): ...


class TestReading(ReadingContract): ...
