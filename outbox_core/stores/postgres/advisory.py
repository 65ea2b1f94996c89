"""Keys of PostgreSQL advisory locks: a readable name hashed to the 64 bits such a lock is taken by."""

from __future__ import annotations

from typing import Final

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
