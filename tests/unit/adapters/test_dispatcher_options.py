"""The arguments that the three dispatchers accept, refuse and show: the same for each."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from outbox_amqp import AmqpDispatcher
from outbox_amqp.rendering import AmqpDestination, check_destination
from outbox_core.adapter.broker import BrokerDispatcher
from outbox_core.adapter.cloud_events import CloudEvents
from outbox_core.dispatcher import load_dispatcher
from outbox_core.errors import BrokerUnavailable, ConfigError, InvalidTopicPattern, InvalidUrl
from outbox_core.testing.contracts.samples import sample
from outbox_kafka import KafkaDispatcher
from outbox_nats import NatsDispatcher
from outbox_nats.rendering import check_subject

URLS: dict[type[BrokerDispatcher[Any]], str] = {
    AmqpDispatcher: "amqp://user:s3cret@host",
    KafkaDispatcher: "kafka://user:s3cret@host",
    NatsDispatcher: "nats://user:s3cret@host",
}
each = pytest.mark.parametrize("kind", URLS, ids=lambda kind: kind.__name__)


def make(kind: type[BrokerDispatcher[Any]], **options: Any) -> BrokerDispatcher[Any]:
    build: Any = kind
    return build(**{"url": URLS[kind], **options})


@each
def test_the_password_is_not_shown(kind: type[BrokerDispatcher[Any]]) -> None:
    dispatcher = make(kind, client_options={"password": "s3cret"} if kind is not KafkaDispatcher else None)

    assert "s3cret" not in f"{dispatcher!r} {dispatcher} {dispatcher.name}"
    assert make(kind, name="orders").name == "orders"


@each
def test_arguments_but_the_address_are_keyword_only(kind: type[BrokerDispatcher[Any]]) -> None:
    address, *options = inspect.signature(kind).parameters.values()
    assert address.name == "url"
    assert {option.kind for option in options} == {inspect.Parameter.KEYWORD_ONLY}


@each
def test_a_plain_host_and_port_is_accepted_as_an_address(kind: type[BrokerDispatcher[Any]]) -> None:
    build: Any = kind
    scheme = URLS[kind].partition(":")[0]
    assert build("127.0.0.1:1234").name == build(f"{scheme}://127.0.0.1:1234").name


def test_the_three_take_the_same_options() -> None:
    special = {"exchange", "key_by_event_id", "stream"}
    options = [frozenset(inspect.signature(kind).parameters) - special for kind in URLS]
    assert len(set(options)) == 1


@each
def test_an_address_or_a_client_is_needed(kind: type[BrokerDispatcher[Any]]) -> None:
    for options in ({"url": None}, {"client": object()}):
        with pytest.raises(ConfigError, match="give either the broker's url or client="):
            make(kind, **options)
    with pytest.raises(ConfigError, match="client_options are for a client made here"):
        make(kind, url=None, client=object(), client_options={})


@each
def test_an_unknown_client_option_is_refused_with_the_known_ones(kind: type[BrokerDispatcher[Any]]) -> None:
    with pytest.raises(ConfigError, match="unknown client option 'colour'; the known ones are '"):
        make(kind, client_options={"colour": "s3cret"})
    with pytest.raises(ConfigError, match="client_options must be a mapping, got list"):
        make(kind, client_options=[])


@pytest.mark.parametrize(
    ("kind", "name"),
    [(AmqpDispatcher, "connection_class"), (KafkaDispatcher, "acks"), (NatsDispatcher, "pending_size")],
)
def test_options_that_delivery_depends_on_are_refused(kind: type[BrokerDispatcher[Any]], name: str) -> None:
    with pytest.raises(ConfigError, match=f"the client option '{name}' cannot be given here: "):
        make(kind, client_options={name: 1})


def test_key_pairs_need_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(
        ConfigError, match=r"'nkeys_seed_str' needs the package nkeys; install it with: pip install"
    ):
        make(NatsDispatcher, client_options={"nkeys_seed_str": "s3cret"})


@each
@pytest.mark.parametrize("name", ["timeout", "connect_timeout", "close_timeout"])
@pytest.mark.parametrize("value", [0, -1, True, "5", None, 1e9, float("nan")])
def test_timeouts_must_be_seconds(kind: type[BrokerDispatcher[Any]], name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{name} is .* and must be a number of seconds"):
        make(kind, **{name: value})


@each
def test_arguments_of_the_wrong_type_are_refused(kind: type[BrokerDispatcher[Any]]) -> None:
    with pytest.raises(ConfigError, match="name must be a str, got int"):
        make(kind, name=5)
    with pytest.raises(ConfigError, match="name is empty"):
        make(kind, name="")
    for wrong in ("xml", 5, True, {"mode": "binary"}):
        with pytest.raises(
            ConfigError, match="cloud_events must be 'binary', 'structured', a CloudEvents or None"
        ):
            make(kind, cloud_events=wrong)
    with pytest.raises(ConfigError, match=r"client must be a .*, got object"):
        make(kind, url=None, client=object())


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        (NatsDispatcher, {"stream": 5}, "stream must be a str, got int"),
        (NatsDispatcher, {"stream": ""}, "stream is empty"),
        (NatsDispatcher, {"stream": "a.b"}, r"stream is 'a\.b': a stream's name has .* no spaces, '\.'"),
        (NatsDispatcher, {"stream": "a b"}, "stream is 'a b': a stream's name has printable"),
        (NatsDispatcher, {"stream": "a\\b"}, "a stream's name has printable"),
        (NatsDispatcher, {"stream": "x" * 256}, "from 1 to 255 characters, not 256"),
        (AmqpDispatcher, {"exchange": "x" * 256}, "exchange has 256 bytes and at most 255 are allowed"),
        (AmqpDispatcher, {"exchange": "é" * 128}, "exchange has 256 bytes"),
        (AmqpDispatcher, {"exchange": "a\nb"}, "exchange has a character that cannot be printed"),
        (AmqpDispatcher, {"exchange": 0}, "exchange must be a str, got int"),
        (KafkaDispatcher, {"key_by_event_id": "no"}, "key_by_event_id must be True or False, got 'no'"),
    ],
)
def test_options_of_a_single_dispatcher_are_checked_too(
    kind: type[BrokerDispatcher[Any]], options: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        make(kind, **options)


@each
@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_cloud_events_may_be_given_as_the_name_of_a_mode(
    kind: type[BrokerDispatcher[Any]], mode: str
) -> None:
    make(kind, cloud_events=mode)


@each
def test_an_address_without_a_port_is_refused_with_an_example(kind: type[BrokerDispatcher[Any]]) -> None:
    port = {AmqpDispatcher: 5672, KafkaDispatcher: 9092, NatsDispatcher: 4222}[kind]
    scheme = URLS[kind].partition(":")[0]
    says = f"write it as '{scheme}://localhost:{port}' or plainly 'localhost:{port}'"
    with pytest.raises(InvalidUrl, match=says):
        make(kind, url="localhost")


@each
def test_destinations_are_checked_when_given(kind: type[BrokerDispatcher[Any]]) -> None:
    with pytest.raises(ConfigError, match=r"the destination of 'a\.\*' is 7: "):
        make(kind, destinations={"a.*": 7})
    with pytest.raises(ConfigError, match="default_destination is 7: "):
        make(kind, destinations={}, default_destination=7)
    with pytest.raises(ConfigError, match="default_destination belongs to a mapping"):
        make(kind, default_destination="a")
    with pytest.raises(ConfigError, match="destinations must be a mapping of topic patterns or a function"):
        make(kind, destinations=7)
    with pytest.raises(InvalidTopicPattern):
        make(kind, destinations={"a.>": "b"})


@each
def test_a_destination_function_must_take_the_topic_alone(kind: type[BrokerDispatcher[Any]]) -> None:
    for function, takes in ((lambda: "a", r"\(\)"), (lambda topic, key: topic + key, r"\(topic, key\)")):
        with pytest.raises(ConfigError, match=f"must take one argument, the topic, and takes {takes}"):
            make(kind, destinations=function)

    class Later:
        async def __call__(self, topic: str) -> str:
            return topic

    with pytest.raises(ConfigError, match="got an asynchronous one"):
        make(kind, destinations=Later())
    make(kind, destinations=lambda topic, prefix="a.": prefix + topic)
    make(kind, destinations=str.upper)


@each
def test_a_name_with_credentials_is_refused_and_not_shown(kind: type[BrokerDispatcher[Any]]) -> None:
    with pytest.raises(ConfigError, match="name is shown in metrics and logs") as raised:
        make(kind, name=URLS[kind])
    assert "s3cret" not in str(raised.value)


@each
def test_invalid_urls_are_refused(kind: type[BrokerDispatcher[Any]]) -> None:
    scheme = URLS[kind].partition(":")[0]
    for url in ("http://host", f"{scheme}://", f"{scheme}://host?colour=1", f"{scheme}://a@b@c", "", "host"):
        with pytest.raises(InvalidUrl):
            make(kind, url=url)
    with pytest.raises(InvalidUrl, match="'cloud_events' is 'yes' and must be one of binary, structured"):
        make(kind, url=f"{scheme}://host?cloud_events=yes")


@each
def test_dispatchers_are_found_by_their_url(kind: type[BrokerDispatcher[Any]]) -> None:
    scheme = URLS[kind].partition(":")[0]
    secured = {"amqp": "amqps", "kafka": "kafka+ssl", "nats": "nats+tls"}[scheme]
    for one in (scheme, secured):
        assert type(load_dispatcher(f"{one}://host")) is kind


@each
@pytest.mark.asyncio
async def test_an_unopened_dispatcher_is_refused(kind: type[BrokerDispatcher[Any]]) -> None:
    dispatcher = make(kind)
    with pytest.raises(BrokerUnavailable, match="is not open; use it inside `async with`"):
        await dispatcher.dispatch(sample("a"))
    with pytest.raises(BrokerUnavailable, match="is not open"):
        await dispatcher.probe()
    await dispatcher.__aexit__(None, None, None)


@pytest.mark.parametrize(
    "subject",
    ["", "a b", "a.", ".a", "a..b", "*", "a.*", "a.>", "$JS.API", "é", "a\r\nb", "x" * 256, None, 7],
)
def test_invalid_subjects_are_refused(subject: object) -> None:
    with pytest.raises(ValueError, match="subject"):
        check_subject(subject)


def test_names_in_urls_are_checked_too() -> None:
    with pytest.raises(InvalidUrl, match=r"the option 'stream' is 'a\.b': a stream's name"):
        make(NatsDispatcher, url="nats://host?stream=a.b")
    with pytest.raises(InvalidUrl, match="the option 'exchange' has 300 bytes"):
        make(AmqpDispatcher, url=f"amqp://host?exchange={'x' * 300}")
    make(NatsDispatcher, url="nats://host?stream=ORDERS_1-eu,west")


def test_amqp_destinations_are_a_routing_key_or_a_pair() -> None:
    assert check_destination("key", "events") == AmqpDestination("events", "key")
    assert check_destination(("", "queue"), "events") == AmqpDestination("", "queue")
    assert check_destination(("fanout", ""), "") == AmqpDestination("fanout", "")


@pytest.mark.parametrize(
    ("mode", "source"), [("xml", None), ("binary", "two words"), ("binary", ""), ("binary", 7)]
)
def test_invalid_cloud_events_are_refused(mode: Any, source: Any) -> None:
    with pytest.raises(ConfigError, match="CloudEvents"):
        CloudEvents(mode, source)
