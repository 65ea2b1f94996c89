"""Checks that the broker answers and has a place for the topics in use."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio

from outbox_core.dispatcher import Dispatcher, Inspecting, Managed, Probing, Routing, name_of
from outbox_core.errors import BrokerRefused, BrokerUnavailable, OutboxError
from outbox_core.finding import Finding, Severity
from outbox_core.routes import leaf_of

_WHY_AWAY: Final = "Messages wait, with their attempts refunded, until it answers again."
_WHY_REFUSED: Final = "A relay with these credentials does not start; no retry helps."
_WHY_NO_PLACE: Final = "Messages of the topic fail, and are dead once their attempts are used up."


async def check_broker(dispatcher: Dispatcher, topics: Sequence[str], timeout: float) -> list[Finding]:
    """Open the dispatcher, probe its destinations and find each topic's place. Publishes nothing."""
    name = name_of(dispatcher)
    try:
        with anyio.fail_after(timeout):
            async with _opened(dispatcher):
                return await _examine(dispatcher, topics)
    except BrokerRefused as error:
        run = (f"check the credentials in the URL of {name}",)
        return [Finding("broker", Severity.ERROR, f"{name} refuses: {error}", _WHY_REFUSED, run)]
    except BrokerUnavailable as error:
        return [_away(name, str(error))]
    except TimeoutError:
        return [_away(name, f"no answer within {timeout:g} s")]
    except OutboxError as error:
        run = ("outbox relay --to URL",)
        return [Finding("broker", Severity.ERROR, f"{name}: {error}", "Nothing can be delivered to it.", run)]


async def _examine(dispatcher: Dispatcher, topics: Sequence[str]) -> list[Finding]:
    findings: list[Finding] = []
    leaves: dict[int, Dispatcher] = {} if isinstance(dispatcher, Routing) else {id(dispatcher): dispatcher}
    places: list[tuple[str, Dispatcher]] = []
    for topic in topics:
        try:
            leaf = leaf_of(dispatcher, topic)
        except Exception as error:  # a router of the application's may raise anything
            ours = isinstance(error, OutboxError)
            findings.append(_no_place(topic, str(error) if ours else f"unexpected {type(error).__name__}"))
            continue
        leaves[id(leaf)] = leaf
        places.append((topic, leaf))
    away: set[int] = set()
    for key, leaf in leaves.items():
        finding = await _probe(leaf)
        findings.append(finding)
        if finding.severity is Severity.ERROR:
            away.add(key)
    asked = [(topic, leaf) for topic, leaf in places if id(leaf) not in away and isinstance(leaf, Inspecting)]
    troubles = [finding for topic, leaf in asked for finding in await _inspect(leaf, topic)]
    if asked and not troubles:
        seen = f"{len(asked)} of the topics in use {'has' if len(asked) == 1 else 'have'} a place"
        findings.append(Finding("destination", Severity.OK, seen))
    return findings + troubles


async def _probe(leaf: Dispatcher) -> Finding:
    name = name_of(leaf)
    if not isinstance(leaf, Probing):
        return Finding("broker", Severity.NOTE, f"{name} cannot be asked for a sign of life")
    try:
        await leaf.probe()
    except BrokerUnavailable as error:
        return _away(name, str(error))
    return Finding("broker", Severity.OK, f"{name} answers")


async def _inspect(leaf: Inspecting, topic: str) -> list[Finding]:
    try:
        await leaf.inspect(topic)
    except BrokerUnavailable as error:
        return [_away(name_of(leaf), str(error))]
    except OutboxError as error:
        return [_no_place(topic, str(error))]
    return []


def _away(name: str, reason: str) -> Finding:
    run = (f"see that {name} is running and can be reached from this host",)
    return Finding("broker", Severity.ERROR, f"{name} is away: {reason}", _WHY_AWAY, run)


def _no_place(topic: str, reason: str) -> Finding:
    run = (f"make the stream, topic, queue or route that takes {topic}",)
    return Finding("destination", Severity.ERROR, f"{topic} has nowhere to go: {reason}", _WHY_NO_PLACE, run)


@asynccontextmanager
async def _opened(dispatcher: Dispatcher) -> AsyncGenerator[None]:
    if isinstance(dispatcher, Managed):
        async with dispatcher:
            yield
    else:
        yield
