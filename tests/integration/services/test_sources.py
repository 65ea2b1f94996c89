"""The order of the sources, and what happens when a server is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services import containers
from tests.services.kafka import KafkaServer
from tests.services.nats import NatsServer
from tests.services.postgres import PostgresServer
from tests.services.rabbitmq import RabbitMQServer
from tests.services.server import Server
from tests.services.session import Services
from tests.services.sources import (
    Candidate,
    Foreign,
    Installation,
    Missing,
    Source,
    Unavailable,
    choose,
    environment,
    missing_is_failure,
)

_EVERY_SOURCE: dict[Source, Path | Foreign] = {
    Source.ENVIRONMENT: Foreign(Source.ENVIRONMENT, "given:1"),
    Source.WHEEL: Path("/wheel"),
    Source.BINARY: Path("/binary"),
    Source.MAVEN: Path("/maven"),
    Source.DOCKER: Foreign(Source.DOCKER, "container:1"),
}


def _candidates(*, without: set[Source]) -> list[Candidate]:
    """Every source, worst first, of which those in `without` have nothing."""
    return [
        _fixed(source, None if source in without else place)
        for source, place in reversed(_EVERY_SOURCE.items())
    ]


def _fixed(source: Source, place: Path | Foreign | None) -> Candidate:
    return Candidate(source, lambda: place)


@pytest.mark.parametrize("expected", list(Source))
def test_the_first_source_that_has_it_wins(expected: Source) -> None:
    better = set(list(Source)[: list(Source).index(expected)])
    assert choose("Server", _candidates(without=better), hint="").source is expected


def test_later_sources_are_not_even_asked() -> None:
    def never() -> Path:
        raise AssertionError("asked although an earlier source delivered")

    given = environment("ADDRESS", {"ADDRESS": "host:1"})
    chosen = choose(
        "Server", [Candidate(Source.DOCKER, never), Candidate(Source.WHEEL, never), given], hint=""
    )
    assert isinstance(chosen, Foreign)
    assert chosen.address == "host:1"


def test_an_empty_variable_is_no_address() -> None:
    assert environment("ADDRESS", {"ADDRESS": " "}).look() is None
    assert environment("ADDRESS", {}).look() is None


def test_a_private_server_is_one_we_start_ourselves() -> None:
    assert choose("Server", _candidates(without=set()), hint="", private=True) == Installation(
        Source.WHEEL, Path("/wheel")
    )
    with pytest.raises(Missing):
        choose(
            "Server", _candidates(without={Source.WHEEL, Source.BINARY, Source.MAVEN}), hint="", private=True
        )


@pytest.mark.parametrize(
    ("kind", "variable"),
    [
        (PostgresServer, "OUTBOX_TEST_POSTGRES_URL"),
        (KafkaServer, "OUTBOX_TEST_KAFKA_URL"),
        (NatsServer, "OUTBOX_TEST_NATS_URL"),
        (RabbitMQServer, "OUTBOX_TEST_AMQP_URL"),
    ],
)
def test_only_a_shared_server_is_advised_to_come_from_docker_or_a_variable(
    kind: type[Server], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "candidates", list)
    for private in (True, False):
        with pytest.raises(Missing, match=f"no {kind.name}: run `") as raised:
            Services().locate(kind, private=private)
        assert [part in str(raised.value) for part in ("Docker", variable)] == [not private] * 2


def test_a_failing_source_is_passed_over_and_named_when_nothing_is_left() -> None:
    def broken() -> Path:
        raise Unavailable("mvn\nis not installed")

    failing = Candidate(Source.MAVEN, broken)
    container = Candidate(Source.DOCKER, lambda: Foreign(Source.DOCKER, "container:1"))
    assert choose("Kafka", [failing, container], hint="").source is Source.DOCKER
    with pytest.raises(Missing) as raised:
        choose("Kafka", [failing], hint="install Maven")
    assert str(raised.value) == "no Kafka: install Maven (Maven: mvn is not installed)"


def test_missing_servers_fail_only_when_required() -> None:
    assert missing_is_failure({"OUTBOX_TEST_REQUIRE": "all"})
    assert not missing_is_failure({})
    with pytest.raises(ValueError, match="OUTBOX_TEST_REQUIRE='kafka'"):
        missing_is_failure({"OUTBOX_TEST_REQUIRE": "kafka"})


def test_docker_counts_only_when_its_engine_answers() -> None:
    def silent() -> None:
        raise ConnectionRefusedError

    assert containers.engine_answers(lambda: "OK")
    assert not containers.engine_answers(silent)
