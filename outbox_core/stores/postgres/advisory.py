"""Keys of PostgreSQL advisory locks: a readable name hashed to the 64 bits such a lock is taken by."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from outbox_core.store import KeyId
    from outbox_core.table import TableName

_OFFSET: Final = 0xCBF29CE484222325
_PRIME: Final = 0x100000001B3
_MASK: Final = 0xFFFFFFFFFFFFFFFF
_SIGN: Final = 0x8000000000000000


def lock_key(name: str) -> int:
    """FNV-1a 64 of the name's UTF-8 bytes, as the two's-complement ``bigint`` PostgreSQL wants.

    The same in every process, language and version, so relays and installers of any age exclude each other: the lock of
    a table's leader is ``lock_key("outbox:<schema>.<name>")``, that of a schema's installers
    ``lock_key("outbox-schema:<schema>")``.
    """
    value = _OFFSET
    for byte in name.encode():
        value = ((value ^ byte) * _PRIME) & _MASK
    return value - (_SIGN << 1) if value & _SIGN else value


def ordering_locks(table: TableName, keys: Iterable[KeyId]) -> list[int]:
    """Return the locks that serialise the writers of ordering keys, sorted so that batches never wait for each other in
    a circle. The same in every version: writers of any age wait for each other."""
    names = {f"outbox-key:{table}:{tenant_id}:{key}" for tenant_id, key in keys}
    return sorted(
        int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True) for name in names
    )
