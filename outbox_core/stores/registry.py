"""Finds the store of a database URL by its scheme."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Final

from outbox_core.errors import ConfigError
from outbox_core.store_backend import StoreBackend

ENTRY_POINTS: Final = "outbox.stores"
_POSTGRES: Final = ("postgresql", "postgres")
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*)://")

_Factory = Callable[[str], Any]


def for_url(url: str) -> StoreBackend:
    """Return the backend of a database URL. Neither connects nor checks more of the URL than its scheme.

    ``postgresql`` and ``postgres`` are built in; installed packages add others (see `outbox_core.store_backend`). A
    scheme such as ``mysql+driver`` belongs to ``mysql`` unless a package declares it as a whole. Raises `ConfigError`
    for a scheme that no package declares. It repeats no other part of the URL.
    """
    given: object = url
    found = _SCHEME.match(given) if isinstance(given, str) else None
    if found is None:
        raise ConfigError("the database URL must be a str that begins with postgresql://")
    scheme = found[1]
    factory = _factory(scheme)
    if factory is None:
        known = sorted({*_POSTGRES, *(entry.name for entry in entry_points(group=ENTRY_POINTS))})
        raise ConfigError(
            f"no installed package stores messages in {scheme}://; the known schemes are {', '.join(known)}. Install"
            f" the package of that store, which declares {scheme!r} as an entry point of the group {ENTRY_POINTS}"
        )
    backend = factory(url)
    if not isinstance(backend, StoreBackend):
        raise ConfigError(
            f"the entry point {scheme} of the group {ENTRY_POINTS} made a {type(backend).__name__}, which is no"
            " StoreBackend"
        )
    return backend


def flaw(url: str) -> str | None:
    """Say why no connection can be made with a database URL as it is written; None when it can be read.

    No part of it is repeated: a mistyped URL has its password anywhere. A scheme that no package declares is judged as
    PostgreSQL's, which says how a URL begins.
    """
    found = _SCHEME.match(url)
    known = None if found is None else _factory(found[1])
    wrong: str | None = (known or _postgres())(url).flaw()
    return wrong


def _factory(scheme: str) -> _Factory | None:
    family = scheme.partition("+")[0]
    if family in _POSTGRES:
        return _postgres()
    declared = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    entry = declared.get(scheme) or declared.get(family)
    return None if entry is None else entry.load()


def _postgres() -> _Factory:
    # Imported only when it is asked for: users of another store need not load its driver.
    from outbox_core.stores.postgres.backend import PostgresBackend

    return PostgresBackend
