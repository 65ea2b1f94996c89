"""``outbox relay`` as a process: delivers, serves, stops, and says what it does in the form that was asked for."""

from __future__ import annotations

import http.client
import json
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from uuid import UUID

import nats
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.cli.command import PATIENCE, Background, background, invoke, outbox
from tests.integration.cli.sql import OTHER, TABLE, add, execute, published, states
from tests.services.nats import NatsServer
from tests.services.own_loop import run_async


@pytest.fixture
def dsn(two_tables: str) -> str:
    return two_tables


@pytest.fixture
def subject(nats_server: NatsServer, unique_name: str) -> str:
    """The first segment of topics that a stream of this test's own stores."""

    async def make() -> None:
        client = await nats.connect(nats_server.address)
        await client.jetstream().add_stream(name=unique_name, subjects=[f"{unique_name}.>"])
        await client.close()

    run_async(make, timeout_s=PATIENCE)
    return unique_name


def stored(server: NatsServer, stream: str) -> int:
    async def read() -> int:
        client = await nats.connect(server.address)
        info = await client.jetstream().stream_info(stream)
        await client.close()
        return info.state.messages

    return run_async(read, timeout_s=PATIENCE)


def enqueue(dsn: str, subject: str, count: int = 20, table: str = TABLE) -> None:
    lines = "".join(f'{{"canary": {number}}}\n' for number in range(count))
    written = invoke(
        "enqueue", f"{subject}.placed.v1", "-", "--lines", "-t", table, database=dsn, stdin=lines
    )
    assert written.code == 0, written.err


def until_published(dsn: str, count: int, table: str = TABLE) -> None:
    deadline = time.monotonic() + PATIENCE
    while published(dsn, table) != count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def relaying(dsn: str, server: NatsServer, *args: str, **env: str) -> Iterator[Background]:
    with background("relay", "--to", server.address, *args, database=dsn, env=env) as process:
        yield process


def get(address: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_delivers_many_tables_and_stops_on_sigterm(dsn: str, nats_server: NatsServer, subject: str) -> None:
    enqueue(dsn, subject, 20)
    enqueue(dsn, subject, 5, OTHER)
    secret = dsn.replace("postgres@", "postgres:canary@")
    assert secret != dsn
    with relaying(secret, nats_server, "-t", TABLE, "-t", OTHER, "--log-level", "debug") as relay:
        relay.wait_for(f"delivering {TABLE}, {OTHER}")
        until_published(dsn, 20)
        until_published(dsn, 5, OTHER)
        assert relay.stop() == 0
    assert stored(nats_server, subject) == 25
    assert "DEBUG outbox_core.relay" in "".join(relay.seen)
    assert "Traceback" not in "".join(relay.seen)
    assert "canary" not in "".join(relay.seen)
    assert "stopped, 0 message(s) left without a recorded outcome" in "".join(relay.seen)


def test_serves_metrics_and_health_and_logs_json(dsn: str, nats_server: NatsServer, subject: str) -> None:
    enqueue(dsn, subject, 7)
    settings = {
        "OUTBOX_RELAY_TABLES": TABLE,
        "OUTBOX_METRICS_PORT": "0",
        "PROMETHEUS_METRICS_PATH": "/here",
        "OUTBOX_LOG_FORMAT": "json",
        "OUTBOX_RELAY_BATCH_SIZ": "5",
    }
    with relaying(dsn, nats_server, **settings) as relay:
        serving = json.loads(relay.wait_for("serving http"))
        assert serving["level"] == "info"
        match = re.search(r"http://(127\.0\.0\.1:\d+)", serving["message"])
        assert match is not None
        until_published(dsn, 7)
        status, text = get(match[1], "/here")
        samples = {
            (sample.name, sample.labels.get("result")): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        assert status == 200
        assert samples["outbox_dispatch_total", "ok"] == 7
        assert get(match[1], "/healthz/live")[0] == 200
        assert get(match[1], "/healthz/ready")[0] == 200
        assert get(match[1], "/nothing")[0] == 404
        assert relay.stop(signal.SIGINT) == 0
    lines = [json.loads(line) for text in relay.seen for line in text.splitlines()]
    leading = next(line for line in lines if line["message"].startswith(f"{TABLE}: leading"))
    assert leading["table"] == TABLE
    misspelt = next(line for line in lines if "OUTBOX_RELAY_BATCH_SIZ " in line["message"])
    assert misspelt["message"].endswith("did you mean OUTBOX_RELAY_BATCH_SIZE?")


def test_once_delivers_what_is_due_and_ends(dsn: str, nats_server: NatsServer, subject: str) -> None:
    enqueue(dsn, subject, 9)
    done = outbox("relay", "--once", "-t", TABLE, "--to", nats_server.address, database=dsn)
    assert (done.code, states(dsn)) == (0, {"published": 9})
    assert "9 message(s) published" in done.err


@pytest.mark.parametrize("tenants", ["off", "hash", "drop"])
def test_tenants_in_the_log_can_be_masked(
    dsn: str, nats_server: NatsServer, subject: str, tenants: str
) -> None:
    tenant = "22222222-2222-2222-2222-222222222222"
    args = ("enqueue", f"{subject}.placed.v1", "1", "-t", TABLE, "--tenant", tenant)
    assert invoke(*args, database=dsn).code == 0
    env = {"OUTBOX_LOG_TENANTS": tenants, "OUTBOX_LOG_TENANTS_SECRET": "canary", "OUTBOX_LOG_FORMAT": "json"}
    done = outbox(
        "relay",
        "--once",
        "-t",
        TABLE,
        "--to",
        nats_server.address,
        "--log-level",
        "debug",
        database=dsn,
        env=env,
    )
    assert done.code == 0, done.err
    (delivered,) = [
        line for line in map(json.loads, done.err.splitlines()) if "acknowledged" in line["message"]
    ]
    hashed = blake2b(UUID(tenant).bytes, digest_size=8, key=b"canary").hexdigest()
    assert delivered.get("tenant_id") == {"off": tenant, "hash": hashed, "drop": None}[tenants]
    assert (tenant in done.err) == (tenants == "off")
    assert "canary" not in done.err


def test_status_sees_the_leader(dsn: str, nats_server: NatsServer) -> None:
    with relaying(dsn, nats_server, "-t", TABLE) as relay:
        relay.wait_for("leading, term 1")
        (found,) = json.loads(invoke("status", "-t", TABLE, "--json", database=dsn).out)["tables"]
        assert found["leader"]["term"] == 1
        assert relay.stop() == 0


def test_other_tables_than_the_relays_are_cleaned(dsn: str, nats_server: NatsServer) -> None:
    add(dsn, "published", 3, age=10_000)
    execute(
        dsn,
        "INSERT INTO shop.invoices_outbox (tenant_id, topic, event_id, digest, payload, published_at)"
        " SELECT tenant_id, topic, event_id, digest, payload, published_at FROM shop.orders_outbox",
    )
    args = ("-t", TABLE, "--cleaner-table", OTHER, "--cleaner-retention", "1h", "--metrics-port", "0")
    with relaying(dsn, nats_server, *args) as relay:
        serving = re.search(r"http://(127\.0\.0\.1:\d+)", relay.wait_for("serving http"))
        assert serving is not None
        relay.wait_for("cleaned: 3 published")
        _, text = get(serving[1], "/debug/prometheus")
        assert f'outbox_cleaned_total{{state="published",table="{OTHER}"}} 3.0' in text
        assert relay.stop() == 0
    assert published(dsn, OTHER) == 0
    assert states(dsn) == {"published": 3}


def test_a_relay_that_is_disabled_only_cleans(dsn: str, nats_server: NatsServer, subject: str) -> None:
    enqueue(dsn, subject, 1)
    add(dsn, "published", 3, age=10_000)
    args = ("--no-enabled", "-t", TABLE, "--cleaner-retention", "1h")
    with relaying(dsn, nats_server, *args) as relay:
        relay.wait_for("cleaned: 3 published")
        assert relay.stop() == 0
    assert states(dsn) == {"pending": 1}
    nowhere = outbox(*("relay", *args))
    assert (nowhere.code, "OUTBOX_DATABASE_URL is not set" in nowhere.err) == (3, True)
    nothing = outbox("relay", "--no-enabled", "--no-cleaner", database=dsn)
    assert nothing.code == 0
    assert "there is nothing to run" in nothing.err


def test_an_unknown_table_to_clean_ends_it(dsn: str, nats_server: NatsServer) -> None:
    done = outbox(
        "relay",
        "-t",
        TABLE,
        "--to",
        nats_server.address,
        "--cleaner-table",
        "shop.missing_outbox",
        database=dsn,
    )
    assert done.code == 6
    assert "error: shop.missing_outbox: there is no such table in this database" in done.err


def test_a_port_that_is_taken(dsn: str, nats_server: NatsServer) -> None:
    port = nats_server.address.rpartition(":")[2]
    done = outbox("relay", "-t", TABLE, "--to", nats_server.address, "--metrics-port", port, database=dsn)
    assert done.code == 3
    assert f"cannot listen on 127.0.0.1:{port}" in done.err


def test_a_scheme_nobody_knows(dsn: str) -> None:
    done = invoke("relay", "-t", TABLE, "--to", "carrier-pigeon://loft:1", database=dsn)
    assert done.code == 3
    assert "no installed package dispatches to 'carrier-pigeon'" in done.err
