"""Fixtures with real servers. A test that asks for one is marked with its kind, so that `-m` can select it."""

from __future__ import annotations

import logging
import secrets
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import NoReturn

import pytest

from tests.services.kafka import KafkaServer
from tests.services.nats import NatsServer
from tests.services.pgbouncer import PgBouncer
from tests.services.postgres import Database, PostgresServer
from tests.services.rabbitmq import RabbitMQServer
from tests.services.server import Server
from tests.services.session import Services
from tests.services.sources import Missing, missing_is_failure

_MARKERS: dict[type[Server], str] = {
    PostgresServer: "postgres",
    PgBouncer: "postgres",
    KafkaServer: "kafka",
    NatsServer: "nats",
    RabbitMQServer: "amqp",
}
_SHARED: dict[str, type[Server]] = {
    "postgres_server": PostgresServer,
    "kafka_server": KafkaServer,
    "nats_server": NatsServer,
    "rabbitmq_server": RabbitMQServer,
    "pgbouncer": PgBouncer,
}
_PRIVATE: dict[str, type[Server]] = {
    "private_postgres": PostgresServer,
    "private_kafka": KafkaServer,
    "private_nats": NatsServer,
    "private_rabbitmq": RabbitMQServer,
}
_SERVICES = pytest.StashKey[Services]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SERVICES] = Services()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A run in the background of a shell is deaf to Ctrl-C, and so would be every process that a test starts.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if kind := _SHARED.get(fixture) or _PRIVATE.get(fixture):
                item.add_marker(_MARKERS[kind])


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Provision before the first test: a download must not count against the time limit of whoever comes first."""
    if session.config.option.collectonly:
        return
    services = session.config.stash[_SERVICES]
    wanted = {fixture for item in session.items for fixture in getattr(item, "fixturenames", ())}
    for fixture in sorted(wanted):
        # The fixture itself looks again, without cost, and decides between skipping and failing.
        with suppress(Missing):
            if fixture in _SHARED:
                services.locate(_SHARED[fixture])
            elif fixture in _PRIVATE:
                services.locate(_PRIVATE[fixture], private=True)


@pytest.fixture(autouse=True)
def logging_kept() -> Iterator[None]:
    """A command that runs inside a test sets the logging of the whole process, which is that of the other tests too."""
    loggers = [
        logging.getLogger(name) for name in ("", "outbox_core", "outbox_amqp", "outbox_kafka", "outbox_nats")
    ]
    levels = [logger.level for logger in loggers]
    handlers = list(loggers[0].handlers)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    for handler in list(loggers[0].handlers):
        if handler not in handlers and type(handler.formatter).__module__ == "outbox_core.cli.logs":
            loggers[0].removeHandler(handler)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that every account can enter, unlike `tmp_path`: PostgreSQL does not run as root."""
    folder = Path(tempfile.mkdtemp(prefix="outbox-test-"))
    folder.chmod(0o755)
    yield folder
    rmtree(folder)


@contextmanager
def skipped_or_failed_when_missing() -> Iterator[None]:
    """Skip the test that misses its server, or fail it when `OUTBOX_TEST_REQUIRE=all`."""
    try:
        yield
    except Missing as missing:
        skip_or_fail(missing)


def skip_or_fail(missing: Missing) -> NoReturn:
    """Skip the test that misses something, or fail it when `OUTBOX_TEST_REQUIRE=all`."""
    if missing_is_failure():
        pytest.fail(str(missing), pytrace=False)
    pytest.skip(str(missing))


@pytest.fixture(scope="session")
def services(pytestconfig: pytest.Config) -> Iterator[Services]:
    """Every server of this run; the fixtures below are the usual ways to it."""
    services = pytestconfig.stash[_SERVICES]
    yield services
    services.close()


@pytest.fixture(scope="session")
def postgres_server(services: Services) -> PostgresServer:
    """The run's PostgreSQL. Fast rather than durable: tests that crash it take `private_postgres`."""
    with skipped_or_failed_when_missing():
        return services.shared(PostgresServer)


@pytest.fixture(scope="session")
def kafka_server(services: Services) -> KafkaServer:
    """The run's Kafka broker."""
    with skipped_or_failed_when_missing():
        return services.shared(KafkaServer)


@pytest.fixture(scope="session")
def nats_server(services: Services) -> NatsServer:
    """The run's NATS server with JetStream."""
    with skipped_or_failed_when_missing():
        return services.shared(NatsServer)


@pytest.fixture(scope="session")
def rabbitmq_server(services: Services) -> RabbitMQServer:
    """The run's RabbitMQ broker."""
    with skipped_or_failed_when_missing():
        return services.shared(RabbitMQServer)


@pytest.fixture
def private_postgres(services: Services) -> Iterator[PostgresServer]:
    """A durable PostgreSQL of this test's own, to freeze and to kill."""
    with skipped_or_failed_when_missing(), services.private(PostgresServer) as server:
        yield server


@pytest.fixture
def private_kafka(services: Services) -> Iterator[KafkaServer]:
    """A Kafka broker of this test's own, to freeze and to kill."""
    with skipped_or_failed_when_missing(), services.private(KafkaServer) as server:
        yield server


@pytest.fixture
def private_nats(services: Services) -> Iterator[NatsServer]:
    """A NATS server of this test's own, to freeze and to kill."""
    with skipped_or_failed_when_missing(), services.private(NatsServer) as server:
        yield server


@pytest.fixture
def private_rabbitmq(services: Services) -> Iterator[RabbitMQServer]:
    """A RabbitMQ broker of this test's own, to freeze and to kill."""
    with skipped_or_failed_when_missing(), services.private(RabbitMQServer) as server:
        yield server


@pytest.fixture
def pgbouncer(services: Services, postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    """A transaction pooler of this test's own in front of the run's PostgreSQL."""
    with skipped_or_failed_when_missing(), services.pgbouncer(postgres_server) as server:
        yield server


@pytest.fixture
def unique_name() -> str:
    """Short, lower-case, unlike that of any other test: fit for a topic, stream, queue, exchange or table."""
    return f"t{secrets.token_hex(5)}"


@pytest.fixture
def database(postgres_server: PostgresServer, unique_name: str) -> Iterator[Database]:
    """An empty database of this test's own on the run's PostgreSQL."""
    with postgres_server.fresh_database(f"outbox_test_{unique_name}") as database:
        yield database
