"""Access to a real NATS server: key pairs, permissions on subjects, and too many requests."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator

import nkeys
import pytest
from nats.aio.client import Client

from outbox_core.errors import BrokerRefused, ProviderError, RetryAfter
from outbox_core.testing.contracts.samples import sample, samples
from outbox_nats import NatsDispatcher
from tests.conftest import skipped_or_failed_when_missing
from tests.integration.adapters.driving import delivered, window
from tests.services.nats import NatsServer
from tests.services.session import Services

pytestmark = [pytest.mark.asyncio, pytest.mark.nats]

Configured = Callable[[type[NatsServer], str], NatsServer]
USERS = """
authorization {{
  users = [
    {{ user: harness, password: harness }},
    {{ nkey: {key}, permissions: {{ publish: {{ allow: ["allowed.>", "$JS.API.>"] }} }} }}
  ]
}}
no_auth_user: harness
"""


def key_pair() -> tuple[str, str]:
    """A seed, which is the secret, and the public key."""
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    return seed.decode(), nkeys.from_seed(seed).public_key.decode()


async def add_stream(server: NatsServer, name: str) -> None:
    client = Client()
    await client.connect(server.address)
    await client.jetstream().add_stream(name=name, subjects=[f"{name}.>"])
    await client.close()


async def test_a_forbidden_subject_fails_until_the_key_pair_may_publish_to_it(
    configured: Configured, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    seed, key = key_pair()
    stranger, _ = key_pair()
    server = configured(NatsServer, USERS.format(key=key))
    for name in ("allowed", "forbidden"):
        await add_stream(server, name)

    with pytest.raises(BrokerRefused, match="refused the login: Authorization Violation"):
        await NatsDispatcher(server.address, client_options={"nkeys_seed_str": stranger}).__aenter__()
    async with NatsDispatcher(server.address, client_options={"nkeys_seed_str": seed}) as dispatcher:
        outcomes = await window(
            dispatcher, [sample("allowed.a"), sample("forbidden.a"), sample("allowed.a")], seconds=5
        )
        assert (outcomes[0], outcomes[2]) == (None, None)
        assert type(outcomes[1]) is ProviderError
        config = server.folder / "nats.conf"
        config.write_text(config.read_text().replace('"allowed.>"', '"allowed.>", "forbidden.>"'))
        server.processes[0].send(signal.SIGHUP)
        await delivered(dispatcher, sample("forbidden.a"))

    assert seed not in caplog.text
    assert stranger not in caplog.text


class OverloadedServer(NatsServer):
    """Buffers one message at a time, and refuses the others as too many requests."""

    def prepare(self) -> None:
        super().prepare()
        text = self._config.read_text()
        self._config.write_text(text.replace("jetstream {", "jetstream { max_buffered_msgs: 1,"))


@pytest.fixture
def overloaded(services: Services) -> Iterator[NatsServer]:
    with skipped_or_failed_when_missing(), services.private(OverloadedServer) as server:
        yield server


async def test_too_many_requests_are_retried_a_second_later(
    overloaded: NatsServer,
) -> None:
    await add_stream(overloaded, "orders")
    async with NatsDispatcher(overloaded.address) as dispatcher:
        outcomes = await window(dispatcher, samples("orders.placed", 1000))
        delayed = [outcome for outcome in outcomes if isinstance(outcome, RetryAfter)]
        assert delayed
        assert len(delayed) + outcomes.count(None) == 1000
        assert delayed[0].delay.total_seconds() == 1
        assert "too many requests" in str(delayed[0])
        await dispatcher.dispatch(sample("orders.placed"))
