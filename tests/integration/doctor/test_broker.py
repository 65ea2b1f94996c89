"""The broker and its places: away, refusing, missing, there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import nats
import pytest
import pytest_asyncio
from nats.aio.client import Client

from outbox_core import Message, Outbox
from outbox_core.dispatchers.router import Router
from outbox_core.doctor import Finding, Severity
from outbox_core.meta import DispatchedMessage
from tests.integration.doctor.ward import TABLE, Ward
from tests.kit.gates import ignore
from tests.services.nats import NatsServer

pytestmark = [pytest.mark.store, pytest.mark.asyncio]

TOPIC = "shop.order.placed.v1"


@pytest_asyncio.fixture
async def client(nats_server: NatsServer) -> AsyncIterator[Client]:
    client = await nats.connect(nats_server.address)
    try:
        yield client
    finally:
        await client.close()


async def enqueue(ward: Ward, topic: str) -> None:
    async with ward.connection.transaction():
        await Outbox(TABLE).enqueue(ward.connection, Message(topic, 1))


def about(findings: list[Finding], check: str) -> list[Severity]:
    return [finding.severity for finding in findings if finding.check == check]


async def test_a_broker_that_answers_and_has_a_place(
    ward: Ward, nats_server: NatsServer, client: Client, unique_name: str
) -> None:
    topic = f"shop.{unique_name}.placed.v1"
    await enqueue(ward, topic)
    found = await ward.diagnose(dispatcher=nats_server.address)
    assert about(found, "broker") == [Severity.OK]
    (missing,) = [finding for finding in found if finding.check == "destination"]
    assert (missing.severity, topic in missing.title, "no stream" in missing.title) == (
        Severity.ERROR,
        True,
        True,
    )
    await client.jetstream().add_stream(name=unique_name, subjects=[topic])
    try:
        found = await ward.diagnose(dispatcher=nats_server.address)
        assert (about(found, "broker"), about(found, "destination")) == ([Severity.OK], [Severity.OK])
        other = await ward.only("destination", dispatcher=f"{nats_server.address}?stream=OTHER")
        assert "belongs to the stream" in other.title
    finally:
        await client.jetstream().delete_stream(unique_name)


async def test_the_topic_of_a_dead_message_is_looked_at_too(
    ward: Ward, nats_server: NatsServer, unique_name: str
) -> None:
    topic = f"shop.{unique_name}.placed.v1"
    await enqueue(ward, topic)
    await ward.connection.execute(f"UPDATE {TABLE} SET dead_at = now(), last_error = 'X y'")  # noqa: S608
    missing = await ward.only("destination", dispatcher=nats_server.address)
    assert (missing.severity, topic in missing.title) == (Severity.ERROR, True)


async def test_a_broker_that_is_away(ward: Ward) -> None:
    finding = await ward.only("broker", dispatcher="nats://127.0.0.1:1", timeout=5.0)
    assert (finding.severity, "is away" in finding.title) == (Severity.ERROR, True)
    assert await ward.findings("schema") == []


async def test_a_url_nobody_knows(ward: Ward) -> None:
    finding = await ward.only("broker", dispatcher="pigeon://loft")
    assert (finding.severity, "pigeon" in finding.title) == (Severity.ERROR, True)


async def test_a_function_cannot_be_asked(ward: Ward) -> None:
    router = Router({"shop.**": ignore})
    await enqueue(ward, TOPIC)
    await enqueue(ward, "billing.invoice.sent.v1")
    found = await ward.diagnose(dispatcher=router)
    assert about(found, "broker") == [Severity.NOTE]
    (missing,) = [finding for finding in found if finding.check == "destination"]
    assert "billing.invoice.sent.v1" in missing.title


class Routes:
    """A router whose answers are the test's; it answers probes as one that takes messages itself."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers

    async def dispatch(self, message: DispatchedMessage, /) -> None: ...

    async def probe(self) -> None: ...

    def route(self, topic: str, /) -> Any:
        return self.answers[topic]


async def test_routers_are_followed_to_where_they_lead(ward: Ward) -> None:
    """As a relay follows them: behind one another, to themselves, and never in circles."""
    inner, outer = Routes({}), Routes({})
    inner.answers = {"to.itself": inner, "in.circles": outer}
    outer.answers = {"to.itself": inner, "in.circles": inner, "to.nothing": "a string"}
    for topic in ("to.itself", "in.circles", "to.nothing", "not.there"):
        await enqueue(ward, topic)
    found = await ward.diagnose(dispatcher=outer)
    assert about(found, "broker") == [Severity.OK]
    titles = sorted(finding.title for finding in found if finding.check == "destination")
    assert [title.partition(": ")[0] for title in titles] == [
        "in.circles has nowhere to go",
        "not.there has nowhere to go",
        "to.nothing has nowhere to go",
    ]
    assert "the routers lead in a circle with the topic 'in.circles': Routes, Routes, Routes; " in titles[0]
    assert "unexpected KeyError" in titles[1]
    assert "route() returned a str, which is not a dispatcher" in titles[2]
