"""The database as commands reach it: every session named, every wait bounded, every error in the library's terms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from outbox_core.stores import for_url

if TYPE_CHECKING:
    from outbox_core.admin_store import AdminStore
    from outbox_core.schema_tools import SchemaTools
    from outbox_core.store_backend import Session
    from outbox_core.table import TableName

T = TypeVar("T")

TIMEOUT: Final = 30.0
"""Seconds a statement may take."""


def run(work: Callable[[], Awaitable[T]], *, fast: bool = False) -> T:
    """Run the asynchronous part of a command; Ctrl-C cancels it. ``fast`` takes uvloop where it is installed."""
    return anyio.run(work, backend_options={"use_uvloop": fast and find_spec("uvloop") is not None})


def connect(url: str, *, timeout: float = TIMEOUT) -> AbstractAsyncContextManager[Session]:
    """Open one session for one command."""
    return for_url(url).session(name="outbox:cli", timeout=timeout)


def schema_tools(url: str) -> SchemaTools:
    """Return the schema tools of the store."""
    return for_url(url).schema


def admin_store(url: str, *tables: TableName) -> AbstractAsyncContextManager[AdminStore]:
    """Open the store's admin store, for cleaning, dead letters and figures; the tables' schema is checked first."""
    return for_url(url).admin_store(*tables, timeout=TIMEOUT)


def translating(url: str, table: TableName, action: str) -> AbstractContextManager[None]:
    """Translate what the store's driver raises inside the block; ``action`` is a verb such as "enqueue"."""
    return for_url(url).translating(table, action)
