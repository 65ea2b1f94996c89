"""The NATS dispatcher's connection: logins, TLS, unavailable servers, and the weaknesses of nats-py."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable

import pytest
from nats.aio.client import Client

from outbox_core.errors import (
    BrokerRefused,
    BrokerUnavailable,
    DispatchTimeout,
    PermanentError,
    ProviderError,
)
from outbox_core.testing.contracts.samples import sample, samples
from outbox_nats import NatsDispatcher
from outbox_nats.client import PING_SECONDS
from tests.integration.adapters.certificates import Certificates
from tests.integration.adapters.driving import delivered, failing, failure
from tests.services.nats import NatsServer
from tests.services.own_loop import run_async
from tests.services.proxy import FaultProxy

pytestmark = [pytest.mark.asyncio, pytest.mark.nats]

Configured = Callable[[type[NatsServer], str], NatsServer]
USERS = """
authorization {{
  users = [
    {{ user: harness, password: harness }},
    {{ user: relay, password: {password}, permissions: {{ publish: {{ allow: ["allowed.>", "$JS.API.>"] }} }} }}
  ]
}}
no_auth_user: harness
"""


async def add_stream(server: NatsServer, name: str) -> None:
    client = Client()
    await client.connect(server.address)
    await client.jetstream().add_stream(name=name.replace(".", "-"), subjects=[name, f"{name}.>"])
    await client.close()


async def stored(server: NatsServer, name: str) -> int:
    client = Client()
    await client.connect(server.address)
    info = await client.jetstream().stream_info(name)
    await client.close()
    return info.state.messages


async def hello(address: str, certificates: Certificates) -> str:
    client = Client()
    await client.connect(address, tls=certificates.context(), allow_reconnect=False)
    await client.close()
    return "unknown"


def as_user(server: NatsServer, password: str) -> str:
    return server.address.replace("nats://", f"nats://relay:{password}@")


async def test_the_dispatcher_opens_while_the_server_is_unavailable(
    private_nats: NatsServer, unique_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    await add_stream(private_nats, unique_name)
    private_nats.stop()
    began = time.monotonic()
    async with NatsDispatcher(url=private_nats.address) as dispatcher:
        assert time.monotonic() - began < 2
        assert "cannot be reached" in caplog.text
        assert type(await failure(dispatcher, sample(unique_name))) is BrokerUnavailable
        with pytest.raises(BrokerUnavailable):
            await dispatcher.probe()
        await asyncio.to_thread(private_nats.start)
        await dispatcher.probe()
        await dispatcher.dispatch(sample(unique_name))


async def test_a_refused_login_is_raised_on_opening(configured: Configured) -> None:
    server = configured(NatsServer, USERS.format(password="right"))

    with pytest.raises(BrokerRefused, match="refused the login: Authorization Violation") as caught:
        await NatsDispatcher(url=as_user(server, "wr0ng-secret")).__aenter__()

    assert "wr0ng-secret" not in repr(caught.value)
    async with NatsDispatcher(url=as_user(server, "right")) as dispatcher:
        await dispatcher.probe()
    special = configured(NatsServer, USERS.format(password='"p@ss/w:rd?%"'))
    async with NatsDispatcher(url=as_user(special, "p%40ss%2Fw%3Ard%3F%25")) as dispatcher:
        await dispatcher.probe()


async def test_an_expired_password_is_requested_again(configured: Configured) -> None:
    server = configured(NatsServer, USERS.format(password="first"))
    await add_stream(server, "allowed")
    password = "first"
    dispatcher = NatsDispatcher(
        url=server.address, client_options={"user": "relay", "password": lambda: password}
    )
    async with dispatcher:
        await dispatcher.dispatch(sample("allowed.a"))
        config = server.folder / "nats.conf"
        config.write_text(config.read_text().replace("password: first", "password: second"))
        server.processes[0].send(signal.SIGHUP)
        error = await failing(dispatcher, sample("allowed.a"), BrokerRefused)
        assert error.code == "PROVIDER.REFUSED"
        password = "second"
        await dispatcher.dispatch(sample("allowed.a"))


async def test_a_forbidden_subject_fails_only_its_own_messages_and_at_once(configured: Configured) -> None:
    server = configured(NatsServer, USERS.format(password="p"))
    await add_stream(server, "allowed")
    await add_stream(server, "forbidden")
    async with NatsDispatcher(url=as_user(server, "p")) as dispatcher:
        began = time.monotonic()
        outcomes = await dispatcher.dispatch_many(
            [sample("allowed.a"), sample("forbidden.a"), sample("forbidden.a"), sample("allowed.b")],
            deadline=asyncio.get_running_loop().time() + 10,
        )
        assert time.monotonic() - began < 3

    assert (outcomes[0], outcomes[3]) == (None, None)
    for outcome in outcomes[1:3]:
        assert type(outcome) is ProviderError
        assert "does not allow this user to publish to 'forbidden.a'" in str(outcome)


async def test_tls_works_with_a_private_authority(
    configured: Configured, certificates: Certificates, unique_name: str
) -> None:
    class TlsServer(NatsServer):
        def round_trip(self, *, timeout_s: float) -> str:
            return run_async(lambda: hello(self.address, certificates), timeout_s=timeout_s)

    server = configured(
        TlsServer, f'tls {{ cert_file: "{certificates.certificate}", key_file: "{certificates.key}" }}'
    )
    url = server.address.replace("nats://", "nats+tls://")

    with pytest.raises(BrokerUnavailable, match=r"(?i)certificate verify failed"):
        await NatsDispatcher(url=url).__aenter__()
    async with NatsDispatcher(url=url, client_options={"tls": certificates.context()}) as dispatcher:
        await dispatcher.probe()


async def test_a_password_is_not_sent_without_the_required_tls(nats_server: NatsServer) -> None:
    """nats-py itself sends it in the clear when the server, or a proxy in front of it, does not ask for TLS."""
    host, port = nats_server.address.removeprefix("nats://").split(":")
    async with FaultProxy((host, int(port))) as proxy:
        for credentials in ("relay:s3cret@", "t0ken@", ""):
            with pytest.raises(BrokerRefused, match="secure connection not available"):
                await NatsDispatcher(url=f"nats+tls://{credentials}127.0.0.1:{proxy.port}").__aenter__()
            assert proxy.requests.forwarded < 400 if not credentials else proxy.requests.forwarded == 0


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"AMQP\x00\x00\x09\x01", b"INFO {\r\n", b""]
)
async def test_another_protocol_at_the_address_is_reported_as_unavailable(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, NatsDispatcher(url=f"nats://127.0.0.1:{port}") as dispatcher:
        error = await failure(dispatcher, sample("a"))

    assert type(error) is BrokerUnavailable
    assert f"nats://127.0.0.1:{port} cannot be reached" in str(error)


async def test_the_other_server_of_an_address_is_used(nats_server: NatsServer, unique_name: str) -> None:
    await add_stream(nats_server, unique_name)
    hosts = nats_server.address.removeprefix("nats://")
    for _ in range(4):
        async with NatsDispatcher(url=f"nats://127.0.0.1:1,{hosts}") as dispatcher:
            await dispatcher.dispatch(sample(unique_name))


async def test_messages_that_failed_during_an_outage_are_not_sent_after_it(
    private_nats: NatsServer, unique_name: str
) -> None:
    """nats-py buffers messages while it is disconnected and sends them later, after its TimeoutError."""
    await add_stream(private_nats, unique_name)
    async with NatsDispatcher(url=private_nats.address) as dispatcher:
        await dispatcher.dispatch(sample(unique_name))
        private_nats.kill()
        outcomes = await dispatcher.dispatch_many(
            samples(unique_name, 5), deadline=asyncio.get_running_loop().time() + 2
        )
        assert all(isinstance(outcome, BrokerUnavailable) for outcome in outcomes)
        await asyncio.to_thread(private_nats.start)
        await delivered(dispatcher, sample(unique_name))

    assert await stored(private_nats, unique_name) == 2


async def test_a_lost_connection_fails_the_window_at_once(private_nats: NatsServer, unique_name: str) -> None:
    """In nats-py a request on a lost connection waits for its timeout."""
    await add_stream(private_nats, unique_name)
    host, port = private_nats.address.removeprefix("nats://").split(":")
    async with (
        FaultProxy((host, int(port))) as proxy,
        NatsDispatcher(url=f"nats://127.0.0.1:{proxy.port}") as dispatcher,
    ):
        await dispatcher.dispatch(sample(unique_name))
        proxy.hold_responses()
        window = asyncio.create_task(
            dispatcher.dispatch_many(samples(unique_name, 5), deadline=asyncio.get_running_loop().time() + 20)
        )
        await proxy.wait_for(lambda proxy: proxy.responses.held > 0)
        began = time.monotonic()
        proxy.reset()
        outcomes = await window
        assert time.monotonic() - began < 2
        assert all(isinstance(outcome, BrokerUnavailable) for outcome in outcomes)
        proxy.pass_through()
        await dispatcher.dispatch(sample(unique_name))


async def test_an_outage_longer_than_the_clients_reconnecting_ends(
    private_nats: NatsServer, unique_name: str
) -> None:
    """After its last attempt to reconnect nats-py's client is closed for good."""
    await add_stream(private_nats, unique_name)
    async with NatsDispatcher(url=private_nats.address) as dispatcher:
        private_nats.kill()
        for _ in range(20):
            assert isinstance(await failure(dispatcher, sample(unique_name)), BrokerUnavailable)
        await asyncio.to_thread(private_nats.start)
        await delivered(dispatcher, sample(unique_name))


async def test_cancelling_a_dispatch_cancels_it(private_nats: NatsServer, unique_name: str) -> None:
    """nats-py's `publish_async` turns a cancellation into another error."""
    await add_stream(private_nats, unique_name)
    async with NatsDispatcher(url=private_nats.address) as dispatcher:
        private_nats.freeze()
        task = asyncio.create_task(dispatcher.dispatch(sample(unique_name)))
        done, _ = await asyncio.wait([task], timeout=0.2)
        assert not done
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        private_nats.thaw()
        await delivered(dispatcher, sample(unique_name))


@pytest.mark.parametrize("fault", ["freeze", "kill"])
async def test_closing_is_bounded_and_silent_when_the_server_is_unavailable(
    private_nats: NatsServer, unique_name: str, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """nats-py's `drain` raises while it reconnects, and its `close` may raise ConnectionResetError."""
    await add_stream(private_nats, unique_name)
    dispatcher = NatsDispatcher(url=private_nats.address)
    await dispatcher.__aenter__()
    await dispatcher.dispatch(sample(unique_name))
    getattr(private_nats, fault)()
    large = sample(unique_name, b"x" * 900_000, content_type="text/plain")
    outcomes = await dispatcher.dispatch_many([large] * 8, deadline=asyncio.get_running_loop().time() + 1)
    assert all(isinstance(outcome, DispatchTimeout | BrokerUnavailable) for outcome in outcomes)
    began = time.monotonic()
    await dispatcher.__aexit__(None, None, None)

    assert time.monotonic() - began < 3
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_late_answer_to_a_probe_does_not_stop_the_applications_client_from_reading(
    private_nats: NatsServer, unique_name: str
) -> None:
    """In nats-py the PONG of a cancelled PING ends the client's reading, and the client still seems connected."""
    await add_stream(private_nats, unique_name)
    client = Client()
    await client.connect(private_nats.address)
    async with NatsDispatcher(client=client) as dispatcher:
        private_nats.freeze()
        probe = asyncio.create_task(dispatcher.probe())
        await asyncio.wait([probe], timeout=0.2)
        probe.cancel()
        await asyncio.wait([probe])
        private_nats.thaw()
        await dispatcher.probe()
        await dispatcher.dispatch(sample(unique_name))
    await client.close()

    with pytest.raises(BrokerUnavailable, match="NATS client that was given is not connected"):
        async with NatsDispatcher(client=client) as dispatcher:
            await dispatcher.dispatch(sample(unique_name))


async def test_a_dead_peer_is_noticed_in_half_a_minute(nats_server: NatsServer) -> None:
    connected: list[Client] = []

    async def discovered() -> None: ...

    dispatcher = NatsDispatcher(url=nats_server.address, client_options={"discovered_server_cb": discovered})
    async with dispatcher, dispatcher._link.use(asyncio.get_running_loop().time() + 5) as held:
        connected.append(held.client.client)

    options = connected[0].options
    assert PING_SECONDS * options["max_outstanding_pings"] <= 30
    assert options["ping_interval"] == PING_SECONDS
    assert options["allow_reconnect"] is False


async def test_a_dispatcher_is_refused_before_opening_and_after_closing(
    nats_server: NatsServer, unique_name: str
) -> None:
    dispatcher = NatsDispatcher(url=nats_server.address)
    for _ in range(2):
        error = await failure(dispatcher, sample(unique_name))
        assert "is not open; use it inside `async with`" in str(error)
        assert not isinstance(error, PermanentError)
        async with dispatcher:
            await dispatcher.probe()
