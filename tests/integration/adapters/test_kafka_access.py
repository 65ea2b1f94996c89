"""Access to a real Kafka broker: SCRAM logins and access lists, refused and then granted."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest

from outbox_core.errors import BrokerRefused, ProviderError
from outbox_core.testing.contracts.samples import sample
from outbox_kafka import KafkaDispatcher
from tests.conftest import skipped_or_failed_when_missing
from tests.integration.adapters.driving import delivered, failing, window
from tests.services.kafka import KafkaServer
from tests.services.session import Services

pytestmark = [pytest.mark.asyncio, pytest.mark.kafka, pytest.mark.timeout(120)]

TOPIC, LITERAL, WRITE, ALLOW = 2, 3, 4, 3


class GuardedKafka(KafkaServer):
    """Has one more listener, for SCRAM logins, whose users may do only what an access list allows."""

    sasl_port: int

    def prepare(self) -> None:
        self.sasl_port = self._run.free_port()
        super().prepare()
        lines = []
        for line in self._config.read_text().splitlines():
            if line.startswith(("listeners=", "advertised.listeners=")):
                line += f",SASL://127.0.0.1:{self.sasl_port}"
            if line.startswith("listener.security.protocol.map="):
                line += ",SASL:SASL_PLAINTEXT"
            lines.append(line)
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        lines += [
            "sasl.enabled.mechanisms=SCRAM-SHA-256",
            f"listener.name.sasl.scram-sha-256.sasl.jaas.config={module} required;",
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users=User:ANONYMOUS",
        ]
        self._config.write_text("\n".join(lines) + "\n")

    def url(self, user: str, password: str) -> str:
        return f"kafka://{user}:{password}@127.0.0.1:{self.sasl_port}?sasl_mechanism=SCRAM-SHA-256"

    def set_password(self, user: str, password: str) -> None:
        command = ["kafka.admin.ConfigCommand", "--bootstrap-server", self.address, "--alter"]
        change = ["--add-config", f"SCRAM-SHA-256=[iterations=4096,password={password}]"]
        subprocess.run(
            [*self._java(), *command, *change, "--entity-type", "users", "--entity-name", user],
            check=True,
            capture_output=True,
            timeout=60,
        )

    async def allow(self, user: str, topic: str) -> None:
        admin: Any = AIOKafkaAdminClient(bootstrap_servers=self.address)
        await admin.start()
        try:
            request = CreateAclsRequest(TOPIC, topic, LITERAL, f"User:{user}", "*", WRITE, ALLOW)
            response = await admin._send_request(request)
        finally:
            await admin.close()
        assert [error for error, *_ in response.creation_responses] == [0]


@pytest.fixture(scope="module")
def guarded(services: Services) -> Iterator[GuardedKafka]:
    with skipped_or_failed_when_missing(), services.private(GuardedKafka) as server:
        yield server


async def test_a_forbidden_topic_fails_only_its_own_messages_until_it_is_allowed(
    guarded: GuardedKafka, unique_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    allowed_topic, forbidden_topic = f"{unique_name}.allowed", f"{unique_name}.forbidden"
    for topic in (allowed_topic, forbidden_topic):
        guarded.create_topic(topic)
    await asyncio.to_thread(guarded.set_password, unique_name, "scr4m-s3cret")
    await guarded.allow(unique_name, allowed_topic)

    async with KafkaDispatcher(guarded.url(unique_name, "scr4m-s3cret")) as dispatcher:
        outcomes = await window(
            dispatcher, [sample(allowed_topic), sample(forbidden_topic), sample(allowed_topic)]
        )
        assert (outcomes[0], outcomes[2]) == (None, None)
        assert type(outcomes[1]) is ProviderError
        assert str(outcomes[1]) == f"this user may not write to the topic {forbidden_topic!r}"
        await guarded.allow(unique_name, forbidden_topic)
        await delivered(dispatcher, sample(forbidden_topic))

    assert "scr4m-s3cret" not in caplog.text


async def test_a_wrong_scram_password_is_refused_and_a_changed_one_is_requested(
    guarded: GuardedKafka, unique_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    guarded.create_topic(unique_name)
    await asyncio.to_thread(guarded.set_password, unique_name, "first-s3cret")
    await guarded.allow(unique_name, unique_name)
    with pytest.raises(BrokerRefused, match="refused the login") as caught:
        await KafkaDispatcher(guarded.url(unique_name, "wr0ng-s3cret")).__aenter__()
    assert "s3cret" not in repr(caught.value)

    password = "first-s3cret"
    options = {"sasl_plain_password": lambda: password}
    url = guarded.url(unique_name, "ignored-s3cret")
    async with KafkaDispatcher(url, client_options=options) as dispatcher:
        await dispatcher.dispatch(sample(unique_name))
        await asyncio.to_thread(guarded.set_password, unique_name, "second-s3cret")
        await asyncio.to_thread(guarded.kill)
        await asyncio.to_thread(guarded.start)
        # aiokafka would retry the login for ever; the missed deadline replaces the client, which then reports it.
        await window(dispatcher, [sample(unique_name)], seconds=3)
        await failing(dispatcher, sample(unique_name), BrokerRefused)
        password = "second-s3cret"
        await delivered(dispatcher, sample(unique_name))

    assert "s3cret" not in caplog.text
