"""The contract of a store's backend: everything one kind of database gives beside the `Store` that relays work on.

`outbox_core.stores.for_url` finds the backend of a URL. A package adds one by an entry point of the group
``outbox.stores``: its name is the URL's scheme, its object a function that takes the URL and returns a `StoreBackend`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from outbox_core.admin_store import AdminStore
    from outbox_core.schema_tools import SchemaTools
    from outbox_core.store import Store
    from outbox_core.store_checks import CheckOptions, StoreChecks
    from outbox_core.table import TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """The settings of a relay that its store depends on. Durations are seconds."""

    tables: Sequence[TableName]
    timeout: float
    """The longest time of one step."""
    takeover: float
    """The silence after which a leader is replaced."""
    elections: bool
    """The relay leads its tables. Otherwise no leader is recorded."""
    cleans: bool
    """The relay also cleans its tables."""


class Session(Protocol):
    """A connection of the store's own driver. `Outbox` and the backend's `SchemaTools` take it."""

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Begin a transaction with the block, and commit it at its end; an error rolls it back."""
        ...


@runtime_checkable
class StoreBackend(Protocol):
    """One database, by its URL. Making a backend neither connects nor refuses a URL; `flaw` says what is wrong with it.

    ``connect`` is passed to the store's driver: the backend says which of its arguments it takes, and refuses the
    others with `ConfigError`. Errors of the driver are translated here: callers see `StorageError` and `ConfigError`,
    without values, passwords or the server's own text.
    """

    @property
    def schema(self) -> SchemaTools:
        """The tools that make, check and change tables."""
        ...

    def flaw(self) -> str | None:
        """Say why no connection can be made with the URL as it is written; None when it can be read. Repeats no part
        of the URL."""
        ...

    def store_factory(
        self, options: StoreOptions, connect: Mapping[str, Any] | None = None
    ) -> Callable[[], Store]:
        """Return what makes a relay's store, a new one at each start of the relay. Wrong arguments are refused now."""
        ...

    def admin_store(
        self,
        *tables: str | TableName,
        timeout: float = ...,
        connect: Mapping[str, Any] | None = None,
    ) -> AbstractAsyncContextManager[AdminStore]:
        """Open an admin store on sessions of its own; the schema of the ``tables`` is checked first. No step takes
        longer than ``timeout`` seconds."""
        ...

    def checks(
        self, options: CheckOptions, connect: Mapping[str, Any] | None = None
    ) -> AbstractAsyncContextManager[StoreChecks]:
        """Open a session for doctor's checks; raises `Unreachable`."""
        ...

    def session(self, *, name: str, timeout: float) -> AbstractAsyncContextManager[Session]:
        """Open one session, which the server shows under that ``name``. No statement takes longer than ``timeout``
        seconds."""
        ...

    def translating(self, table: TableName, action: str) -> AbstractContextManager[None]:
        """Translate the driver's errors inside the block; ``action`` is a verb such as "enqueue"."""
        ...
