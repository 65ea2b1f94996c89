"""Advisory lock keys are the published FNV-1a 64 function, in the range of a bigint."""

from __future__ import annotations

from uuid import UUID

import pytest

from outbox_core.stores.postgres.advisory import lock_key, ordering_locks
from outbox_core.table import TableName


@pytest.mark.parametrize(
    ("name", "hashed"),
    [
        ("", 0xCBF29CE484222325),
        ("a", 0xAF63DC4C8601EC8C),
        ("foobar", 0x85944171F73967E8),
    ],
)
def test_known_vectors(name: str, hashed: int) -> None:
    assert lock_key(name) % 2**64 == hashed


def test_is_a_signed_64_bit_integer() -> None:
    keys = [lock_key(f"outbox:public.t{number}") for number in range(1000)]
    assert all(-(2**63) <= key < 2**63 for key in keys)
    assert min(keys) < 0 < max(keys)
    assert len(set(keys)) == len(keys)


def test_is_taken_over_the_utf8_bytes() -> None:
    assert lock_key("é") != lock_key("e")
    assert lock_key("é") % 2**64 == _reference("é".encode())


def _reference(data: bytes) -> int:
    value = 14695981039346656037
    for byte in data:
        value = (value ^ byte) * 1099511628211 % 2**64
    return value


def test_the_locks_of_ordering_keys_are_the_same_in_every_version() -> None:
    table, tenant = TableName("shop", "orders_outbox"), UUID(int=7)
    keys = [(tenant, "order-7"), (UUID(int=0), "☃"), (tenant, "order-7")]
    assert ordering_locks(table, keys) == [-5067117760864319151, 5827004002989710922]
    assert ordering_locks(table, reversed(keys)) == [-5067117760864319151, 5827004002989710922]
    assert ordering_locks(table, []) == []
