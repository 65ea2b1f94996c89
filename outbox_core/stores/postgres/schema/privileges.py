"""`roles`: the grants that give each part of a system what it needs and nothing more."""

from __future__ import annotations

from typing import Final

from outbox_core.errors import ConfigError
from outbox_core.jsonb import SURROGATE
from outbox_core.stores.postgres.schema.fixes import quote
from outbox_core.stores.postgres.sql import render
from outbox_core.table import TableName

_MAX_ROLE_BYTES: Final = 63


def roles(
    table: str | TableName,
    *,
    migrator: str | None = None,
    producer: str | None = None,
    relay: str | None = None,
    viewer: str | None = None,
    operator: str | None = None,
) -> str:
    """The SQL that grants existing roles their part of one table; a part that is not named is left out.

    The migrator becomes the owner of the table, of its audit and of the two tables its schema shares. The producer may
    enqueue and read back no more than ``event_id``, ``sequence``, ``topic``, ``tenant_id`` and ``digest``: a service
    that lists messages needs the viewer's grants too, one that reads payloads those of the relay. The operator may
    replay, discard, release and postpone messages, which the audit records, without seeing their content. Run it as a
    superuser, or as the tables' owner who is a member of the migrator's role. One role may be given several parts.
    """
    name = TableName.parse(table)
    parts = {
        "migrator": migrator,
        "producer": producer,
        "relay": relay,
        "viewer": viewer,
        "operator": operator,
    }
    scripts = [
        render(f"ddl/roles/{part}.sql", name).replace("{role}", _quoted(part, role))
        for part, role in parts.items()
        if role is not None
    ]
    if not scripts:
        raise ConfigError(f"roles({str(name)!r}) was given no role; name at least one of {', '.join(parts)}")
    return "\n".join(scripts)


def _quoted(part: str, role: str) -> str:
    if not isinstance(role, str):
        raise ConfigError(f"the role of the {part} must be a str, got {type(role).__name__}")
    if SURROGATE.search(role) is not None or "\0" in role or not 0 < len(role.encode()) <= _MAX_ROLE_BYTES:
        raise ConfigError(
            f"the role of the {part} must have 1 to {_MAX_ROLE_BYTES} bytes of UTF-8 and no NUL character,"
            f" got {role[: _MAX_ROLE_BYTES + 1]!r}"
        )
    return quote(role)
