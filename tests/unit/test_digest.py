from __future__ import annotations

from uuid import UUID

from outbox_core.encoding import encode_json
from outbox_core.message import NIL_UUID, digest

TOPIC = "orders.order.placed.v1"
TENANT = UUID("7d444840-9dc0-11d1-b245-5ffdce74fad2")


def test_stored_digests_never_change() -> None:
    payload = encode_json({"id": 1}).encode()

    assert (
        digest(TOPIC, TENANT, "order-1", None, payload).hex()
        == "a3052eca6b5d61c274117a00dd14da61a15716ac17d4bc6baa38e6469edec448"
    )
    assert (
        digest(TOPIC, NIL_UUID, None, "application/avro", b"\x00\xff").hex()
        == "c27a0a5825eaa2409a4a7c91705abe8fddc49f8e0a707bcfaf71a256f9c489f4"
    )


def test_different_parts_never_make_the_same_digest() -> None:
    digests = {
        digest("a", NIL_UUID, None, None, b""),
        digest("ab", NIL_UUID, None, None, b""),
        digest("a", NIL_UUID, "b", None, b""),
        digest("a", NIL_UUID, None, "b", b""),
        digest("a", NIL_UUID, None, None, b"b"),
        digest("a", NIL_UUID, "", None, b""),
        digest("a", NIL_UUID, None, "", b""),
        digest("a", TENANT, None, None, b""),
        digest("a", NIL_UUID, "b", "c", b""),
        digest("a", NIL_UUID, "bc", "", b""),
        digest("a", NIL_UUID, "", "bc", b""),
    }

    assert len(digests) == 11
