"""Options that are passed to a broker's client unchanged."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from outbox_core.errors import ConfigError


def checked_options(options: object, *, known: Collection[str], owned: Mapping[str, str]) -> dict[str, Any]:
    """The options, after refusing those the client does not know and those that only the dispatcher may choose.

    ``owned`` gives the reason for each of the latter. Values are not checked, and never shown.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise ConfigError(f"client_options must be a mapping, got {type(options).__name__}")
    given = cast("Mapping[str, Any]", options)
    for name in given:
        if name in owned:
            raise ConfigError(f"the client option {name!r} cannot be given here: {owned[name]}")
    unknown = sorted(repr(name) for name in given if name not in known)
    if unknown:
        accepted = ", ".join(repr(name) for name in sorted(set(known) - owned.keys()))
        raise ConfigError(f"unknown client option {', '.join(unknown)}; the known ones are {accepted}")
    return dict(given)


def exactly_one(*, url: object, client: object, options: object) -> None:
    """Refuse a dispatcher with neither an address nor a client, or with both."""
    if (url is None) == (client is None):
        raise ConfigError(
            "give either the broker's url or client=, the client of the broker that the application already has"
        )
    if client is not None and options is not None:
        raise ConfigError("client_options are for a client made here; the one given as client= has its own")
