"""Tenants in logs and audits: shown, told apart without being named, or left out."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from outbox_core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

Masking: TypeAlias = Literal["off", "hash", "drop"]
"""``off`` shows the tenant, ``hash`` a short hash of it, ``drop`` nothing."""

_DIGEST_BYTES: Final = 8
_MAX_SECRET_BYTES: Final = 64


def tenant_mask(masking: Masking, secret: bytes = b"") -> Callable[[UUID], str | None]:
    """How a tenant is written: a function to text, or to None when it is left out.

    The hash of a tenant is always the same, so that lines of one tenant can be found together. Whoever can list the
    tenants can find out whose hash it is, unless a ``secret`` of at most 64 bytes goes into it.
    """
    given: object = masking
    if len(secret) > _MAX_SECRET_BYTES:
        raise ConfigError(
            f"the secret of a tenant mask has {len(secret)} bytes, at most {_MAX_SECRET_BYTES} are allowed"
        )
    if given == "off":
        return str
    if given == "drop":
        return _nothing
    if given == "hash":
        return lambda tenant: blake2b(tenant.bytes, digest_size=_DIGEST_BYTES, key=secret).hexdigest()
    raise ConfigError(f"tenants must be 'off', 'hash' or 'drop', got {given!r}")


def _nothing(_tenant: UUID) -> None:
    return None
