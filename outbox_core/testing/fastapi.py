"""Tests of a FastAPI application without a database: its requests get an outbox in memory."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin
from unittest.mock import AsyncMock, MagicMock

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
    path functions see as the session or connection, and is yours to prepare. By default it is a mock of the type that
    the annotation names, such as ``AsyncSession``: it takes every call that type takes, and what a query returns is a
    ``MagicMock``. It goes through ``app.dependency_overrides``, and afterwards these are as they were.
    """
    memory = MemoryOutbox() if outbox is None else outbox
    double: Any = _double(dependency) if tx is None else tx

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


def _double(dependency: Any) -> AsyncMock:
    """A mock of what the annotation says the outbox is bound to; without a type, one that can only be awaited."""
    bound_to = get_args(get_args(dependency)[0]) if get_origin(dependency) is Annotated else ()
    kind = bound_to[0] if bound_to and isinstance(bound_to[0], type) and bound_to[0] is not Any else None
    double = AsyncMock(spec=kind)
    for name in dir(kind):
        if inspect.iscoroutinefunction(getattr(kind, name, None)):
            # What was awaited is a result, whose own methods are called without await.
            getattr(double, name).return_value = MagicMock()
    return double
