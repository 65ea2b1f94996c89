"""Tests of a FastAPI application without a database: its requests get an outbox in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

from outbox_core.integrations.fastapi import dependency_of
from outbox_core.testing.memory import MemoryOutbox

if TYPE_CHECKING:
    from fastapi import FastAPI

    from outbox_core.integrations.bound import BoundOutbox

__all__ = ["override_outbox"]


@contextmanager
def override_outbox(
    app: FastAPI, dependency: Any, outbox: MemoryOutbox | None = None, *, tx: object = None
) -> Generator[MemoryOutbox]:
    """Give requests an outbox in memory, which the block gets too, instead of what `outbox_transaction` made::

        @pytest.fixture
        def outbox():
            with override_outbox(app, Orders) as outbox:
                yield outbox

    ``dependency`` is the annotation of path functions, such as ``Orders``, or the ``Depends`` in it; `bound_outbox`'s
    will do as well. What a request enqueues is there when it has succeeded, and not when it has failed. ``tx`` is what
    path functions see as the session or connection, and is yours to prepare: an ``AsyncMock`` by default, which says
    yes to everything. It goes through ``app.dependency_overrides``, and afterwards these are as they were.
    """
    memory = MemoryOutbox() if outbox is None else outbox
    double: Any = AsyncMock() if tx is None else tx

    async def bound_in_memory() -> AsyncGenerator[BoundOutbox[Any]]:
        async with memory.bound(double) as binding:
            yield binding

    key = dependency_of(dependency)
    before = dict(app.dependency_overrides)
    app.dependency_overrides[key] = bound_in_memory
    try:
        yield memory
    finally:
        app.dependency_overrides.clear()
        app.dependency_overrides.update(before)
