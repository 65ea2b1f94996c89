"""The Kafka dispatcher's connection: logins, TLS, unavailable brokers, and the weaknesses of aiokafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from outbox_core.errors import BrokerRefused, BrokerUnavailable, DispatchTimeout
from outbox_core.testing.contracts.samples import sample, samples
from outbox_kafka import KafkaDispatcher
from tests.conftest import skipped_or_failed_when_missing
from tests.integration.adapters.certificates import Certificates
from tests.integration.adapters.driving import delivered, failing, failure, window
from tests.services.kafka import KafkaServer
from tests.services.session import Services

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.timeout(120)]

PASSWORD = "first-s3cret"


class SecuredKafka(KafkaServer):
    """Has two more listeners: one with SASL/PLAIN, one with TLS. The user ``stranger`` may only log in."""

    certificates: Certificates
    sasl_port: int
    tls_port: int

    def prepare(self) -> None:
        self.sasl_port, self.tls_port = self._run.free_port(), self._run.free_port()
        super().prepare()
        keystore = self.folder / "keystore.pem"
        keystore.write_text(self.certificates.key.read_text() + self.certificates.certificate.read_text())
        lines = []
        for line in self._config.read_text().splitlines():
            if line.startswith(("listeners=", "advertised.listeners=")):
                line += f",SASL://127.0.0.1:{self.sasl_port},TLS://127.0.0.1:{self.tls_port}"
            if line.startswith("listener.security.protocol.map="):
                line += ",SASL:SASL_PLAINTEXT,TLS:SSL"
            lines.append(line)
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        lines += [
            "sasl.enabled.mechanisms=PLAIN",
            f'listener.name.sasl.plain.sasl.jaas.config={module} required user_relay="{PASSWORD}" user_stranger="p";',
            "listener.name.tls.ssl.keystore.type=PEM",
            f"listener.name.tls.ssl.keystore.location={keystore}",
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users=User:ANONYMOUS;User:relay",
        ]
        self._config.write_text("\n".join(lines) + "\n")

    def change_password(self, old: str, new: str) -> None:
        self._config.write_text(
            self._config.read_text().replace(f'user_relay="{old}"', f'user_relay="{new}"')
        )


@pytest.fixture(scope="module")
def secured(services: Services, certificates: Certificates) -> Iterator[SecuredKafka]:
    SecuredKafka.certificates = certificates
    with skipped_or_failed_when_missing(), services.private(SecuredKafka) as server:
        yield server


async def test_the_dispatcher_opens_while_the_broker_is_unavailable(
    private_kafka: KafkaServer, unique_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    private_kafka.create_topic(unique_name)
    private_kafka.kill()
    began = time.monotonic()
    async with KafkaDispatcher(url=f"kafka://{private_kafka.address}") as dispatcher:
        assert time.monotonic() - began < 2
        assert "cannot be reached" in caplog.text
        assert type(await failure(dispatcher, sample(unique_name))) is BrokerUnavailable
        with pytest.raises(BrokerUnavailable):
            await dispatcher.probe()
        await asyncio.to_thread(private_kafka.start)
        await dispatcher.probe()
        await delivered(dispatcher, sample(unique_name))


async def test_a_frozen_broker_is_abandoned_within_the_deadline(
    private_kafka: KafkaServer, unique_name: str
) -> None:
    """aiokafka's `send_and_wait` and `stop` wait for ever, on a frozen broker and on a dead one."""
    private_kafka.create_topic(unique_name)
    dispatcher = KafkaDispatcher(url=f"kafka://{private_kafka.address}", connect_timeout=1)
    await dispatcher.__aenter__()
    await dispatcher.dispatch(sample(unique_name))
    private_kafka.freeze()
    for expected in (DispatchTimeout, BrokerUnavailable):
        began = time.monotonic()
        outcomes = await window(dispatcher, samples(unique_name, 5), seconds=1.5)
        assert time.monotonic() - began < 2
        assert [type(outcome) for outcome in outcomes] == [expected] * 5
    private_kafka.thaw()
    await delivered(dispatcher, sample(unique_name))
    private_kafka.kill()
    assert all(
        isinstance(outcome, DispatchTimeout | BrokerUnavailable)
        for outcome in await window(dispatcher, samples(unique_name, 5), seconds=1)
    )
    began = time.monotonic()
    await dispatcher.__aexit__(None, None, None)
    assert time.monotonic() - began < 3


async def test_a_refused_login_is_raised_on_opening(secured: SecuredKafka, unique_name: str) -> None:
    with pytest.raises(BrokerRefused, match="refused the login") as caught:
        await KafkaDispatcher(url=f"kafka://relay:wr0ng-secret@127.0.0.1:{secured.sasl_port}").__aenter__()
    assert "wr0ng-secret" not in repr(caught.value)

    scram = f"kafka://relay:{PASSWORD}@127.0.0.1:{secured.sasl_port}?sasl_mechanism=SCRAM-SHA-256"
    with pytest.raises(BrokerRefused, match="UnsupportedSaslMechanism"):
        await KafkaDispatcher(url=scram).__aenter__()

    # This user may log in, but may not be an idempotent producer.
    with pytest.raises(BrokerRefused, match="ClusterAuthorizationFailed"):
        await KafkaDispatcher(url=f"kafka://stranger:p@127.0.0.1:{secured.sasl_port}").__aenter__()

    secured.create_topic(unique_name)
    async with KafkaDispatcher(url=f"kafka://relay:{PASSWORD}@127.0.0.1:{secured.sasl_port}") as dispatcher:
        await dispatcher.dispatch(sample(unique_name))


async def test_tls_works_with_a_private_authority(
    secured: SecuredKafka, certificates: Certificates, unique_name: str
) -> None:
    secured.create_topic(unique_name)
    url = f"kafka+ssl://127.0.0.1:{secured.tls_port}"

    with pytest.raises(BrokerRefused, match=r"certificate of kafka\+ssl://.* is not trusted"):
        await KafkaDispatcher(url=url).__aenter__()
    async with KafkaDispatcher(url=url, client_options={"ssl_context": certificates.context()}) as dispatcher:
        await dispatcher.dispatch(sample(unique_name))


async def test_an_expired_password_is_requested_again(secured: SecuredKafka, unique_name: str) -> None:
    secured.create_topic(unique_name)
    password = PASSWORD
    options = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_plain_username": "relay",
        "sasl_plain_password": lambda: password,
    }
    async with KafkaDispatcher(
        url=f"kafka://127.0.0.1:{secured.sasl_port}", client_options=options
    ) as dispatcher:
        await dispatcher.dispatch(sample(unique_name))
        await asyncio.to_thread(secured.stop)
        secured.change_password(PASSWORD, "second")
        try:
            await asyncio.to_thread(secured.start)
            (outcome,) = await window(dispatcher, [sample(unique_name)], seconds=3)
            assert isinstance(outcome, BrokerRefused | DispatchTimeout), outcome
            await failing(dispatcher, sample(unique_name), BrokerRefused)
            password = "second"
            await dispatcher.dispatch(sample(unique_name))
        finally:
            await asyncio.to_thread(secured.stop)
            secured.change_password("second", PASSWORD)
            await asyncio.to_thread(secured.start)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"INFO {}\r\n", b""])
async def test_another_protocol_at_the_address_is_reported_as_unavailable(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, KafkaDispatcher(url=f"kafka://127.0.0.1:{port}", connect_timeout=2) as dispatcher:
        error = await failure(dispatcher, sample("a"))

    assert type(error) is BrokerUnavailable
    assert f"kafka://127.0.0.1:{port}" in str(error)
