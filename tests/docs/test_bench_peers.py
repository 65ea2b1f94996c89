"""Benchmarks beside others: a peer or a broker that fails is told of alone, and all are timed alike."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import brokers
from benchmarks.catalogue import Mode
from benchmarks.common import Place
from benchmarks.peers import beside, child, environments, tune
from benchmarks.turns import guarded
from tests.services.server import StartFailed


def test_a_peer_that_cannot_be_installed_is_named_with_its_bars() -> None:
    peer = next(each for each in environments.peers() if each.name == "pgqueuer")
    first, second = beside.not_measured(peer, "pgqueuer cannot be installed:\nno network")
    assert (first.name, second.name) == ("drain_vs_pgqueuer", "drain_keyed_vs_pgqueuer")
    assert (first.bar, first.why) == ("≥ 3", "pgqueuer cannot be installed: no network")


PRINTS_NO_RESULT = "print('ready')"
FAILS = "import sys; print('ready'); sys.exit(3)"


@pytest.mark.parametrize(
    ("program", "told"),
    [(PRINTS_NO_RESULT, "ended well and printed no result"), (FAILS, "failed with 3")],
)
@pytest.mark.asyncio
async def test_a_peer_that_fails_while_it_is_timed_is_told_of_alone(
    program: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_peer.py").write_text(program, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(environments.Peer, "module", "broken_peer")
    peer, rounds = environments.peers()[0], beside.Rounds()

    async def written(*_: Any, **__: Any) -> dict[str, float]:
        return {"0": 0.0}

    monkeypatch.setattr(beside.processes, "child", written)
    place, size = Place("postgresql://nowhere", None), beside.SIZES[Mode.SMOKE]
    await guarded(rounds, lambda: beside.peer_latency(place, peer, Path(sys.executable), size, rounds, ""))()
    assert rounds.failure is not None
    assert told in rounds.failure


@pytest.mark.asyncio
async def test_whatever_a_peer_raises_is_told_of_it_alone_and_it_has_no_further_turn() -> None:
    rounds, turns = beside.Rounds(), 0

    async def broken() -> None:
        nonlocal turns
        turns += 1
        raise ZeroDivisionError("no seconds")

    turn = guarded(rounds, broken)
    await turn()
    await turn()
    assert (rounds.failure, turns) == ("it failed: ZeroDivisionError: no seconds", 1)


def test_a_broker_that_does_not_start_is_named_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Services:
        run = None

        def shared(self, kind: type[Any]) -> Any:
            if kind is brokers.NatsServer:
                raise StartFailed("NATS ended with exit code 1\nlast lines of its log:\nno room")
            return SimpleNamespace(address="amqp://here")

        def close(self) -> None: ...

    monkeypatch.setattr(brokers, "Services", Services)
    with brokers.brokers(["nats", "amqp"]) as (addresses, missing):
        assert addresses == {"amqp": "amqp://here"}
        (nats,) = missing
    assert (nats.name, nats.bar) == ("drain_nats_vs_bound", "≥ 0.8")
    assert nats.why == "NATS ended with exit code 1 last lines of its log: no room"


@pytest.mark.asyncio
async def test_a_broker_that_fails_in_a_round_is_named_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @asynccontextmanager
    async def database(_: Place) -> AsyncIterator[None]:
        yield

    async def nobody(_: brokers.Bench, drains: list[float], __: int) -> None:
        drains.append(900.0)

    async def relay(_: brokers.Bench, kind: str, __: str, rounds: brokers.Rounds, turn: int) -> None:
        if kind == "nats" and turn == 1:
            raise ConnectionResetError("it is\ngone")
        rounds.relay.append(100.0)
        rounds.relay_cpu.append(9.0)
        rounds.relay_latency.append([1.0])

    async def plain(_: brokers.Bench, __: str, ___: str, rounds: brokers.Rounds, turn: int) -> None:
        rounds.plain.append(200.0)
        rounds.plain_cpu.append(9.0)
        rounds.making_cpu.append(1.0)
        rounds.plain_latency.append([1.0])

    monkeypatch.setattr(brokers.common, "database", database)
    monkeypatch.setattr(brokers.Bench, "nobody", nobody)
    monkeypatch.setattr(brokers.Bench, "relay", relay)
    monkeypatch.setattr(brokers.Bench, "plain", plain)
    size = brokers.Size(rows=1, repeats=2, seconds=0.1, latency_rounds=1)
    place = Place("postgresql://nowhere", None)
    section = await brokers.measure(place, {"nats": "here", "amqp": "there"}, [], size)
    (nats,) = section.missing
    assert (nats.name, nats.why) == ("drain_nats_vs_bound", "it failed: ConnectionResetError: it is gone")
    named = {each.name for each in section.figures}
    assert "drain_amqp_vs_bound" in named
    assert not [name for name in named if "nats" in name]


@pytest.mark.asyncio
async def test_a_peers_payload_is_read_where_it_is_timed_and_not_where_it_drains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collector = {"collect": int, "freeze": int, "get_threshold": lambda: (0, 0), "set_threshold": max}
    monkeypatch.setattr(child, "gc", SimpleNamespace(**collector))

    class Peer:
        """Hands over numbers; knows how often one was read."""

        def __init__(self) -> None:
            self.queue: asyncio.Queue[int] = asyncio.Queue()
            self.read = 0

        async def add(self, payloads: list[dict[str, Any]], /) -> None:
            for payload in payloads:
                self.queue.put_nowait(payload["order"])
                if payload["order"] < 0:
                    self.queue.put_nowait(0)

        async def work(self, handle: child.Handler, /) -> None:
            while True:
                handle(await self.queue.get())

        def payload(self, given: int, /) -> dict[str, Any]:
            self.read += 1
            return {"order": given}

        async def install(self) -> None: ...

        async def settle(self) -> None: ...

        async def left(self) -> int:
            return self.queue.qsize()

    peer = Peer()
    assert (await child.drain(peer, {"rows": 3}))["published"] == 3
    assert peer.read == 0
    assert (await child.receive(peer, {"rows": 1})).keys() == {"0"}
    assert peer.read == 2


def test_the_quickest_is_not_known_while_one_of_the_others_is_not_timed() -> None:
    pgqueuer = next(each for each in environments.peers() if each.name == "pgqueuer")
    relay, other = (beside.Rounds(latency={"": [1.6, 1.7, 1.8], "_idle": [each] * 3}) for each in (2.0, 1.0))
    for whole in (True, False):
        found = {
            each.name: each.value
            for kind in beside.RATES
            for each in beside.latencies_beside(relay, {pgqueuer: other}, kind, whole=whole)
        }
        for kind, expected in (("", 1.0), ("_idle", 2.0)):
            assert found.get(f"latency{kind}_p50_vs_peers") == (expected if whole else None)
            assert {f"beside_peers_relay{kind}_p50_ms", f"pgqueuer{kind}_p50_ms"} <= found.keys()
    assert beside.untimed({pgqueuer: other}, ("pgqueuer", "txoutbox")) == ["txoutbox"]


def test_settings_of_peers_are_tried_by_drains_alone() -> None:
    size = tune.drains(100, 2)
    assert (size.rows, size.repeats, size.timed) == (100, 2, ())
