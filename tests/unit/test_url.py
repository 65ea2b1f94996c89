"""Dispatcher URLs: what is read, what is refused, and that a password never shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_core.errors import ConfigError, InvalidUrl
from outbox_core.url import DispatcherUrl

SECRET = "s3cr3t"


def test_everything_is_read() -> None:
    url = DispatcherUrl.parse("kafka://user:secret@host1:9092,host2/path/more?client_id=orders&empty=")
    assert url.scheme == "kafka"
    assert url.hosts == (("host1", 9092), ("host2", None))
    assert url.username == "user"
    assert url.password == "secret"
    assert url.path == "path/more"
    assert url.options == {"client_id": "orders", "empty": ""}


def test_the_least_there_can_be() -> None:
    url = DispatcherUrl.parse("nats://localhost")
    assert url == DispatcherUrl(scheme="nats", hosts=url.hosts)
    assert (url.username, url.password, url.path, dict(url.options)) == (None, None, "", {})


def test_a_host_may_be_fully_qualified() -> None:
    url = DispatcherUrl.parse("kafka://broker-1.example.org.:9092")
    assert url.hosts == (("broker-1.example.org.", 9092),)


def test_ipv6_hosts_lose_their_brackets_and_get_them_back_in_addresses() -> None:
    url = DispatcherUrl.parse("kafka://[::1]:9092,[fe80::2]")
    assert url.hosts == (("::1", 9092), ("fe80::2", None))
    assert [host.address(1234) for host in url.hosts] == ["[::1]:9092", "[fe80::2]:1234"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("p%40ss%2Fw%3Frd%23%25", "p@ss/w?rd#%"),
        ("%3A%2C%26%3D", ":,&="),
        ("sp%20ace", "sp ace"),
        ("a:b", "a:b"),
        ("", ""),
    ],
)
def test_passwords_are_percent_decoded(written: str, meant: str) -> None:
    assert DispatcherUrl.parse(f"amqp://user:{written}@host").password == meant


def test_a_plus_sign_is_a_plus_sign() -> None:
    url = DispatcherUrl.parse("amqp://u:a+b@host?name=c+d")
    assert url.password == "a+b"
    assert url.options == {"name": "c+d"}


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        pytest.param("", "it has no scheme", id="empty"),
        pytest.param("localhost:9092", "it has no scheme", id="no-scheme"),
        pytest.param(f"user:{SECRET}@host", "it has no scheme", id="no-scheme-with-password"),
        pytest.param("://host", "it has no scheme", id="empty-scheme"),
        pytest.param("KAFKA://host", "its scheme is written in small letters", id="upper-case-scheme"),
        pytest.param("kafka://", "it names no host; write it as kafka://host:port", id="no-host"),
        pytest.param(f"kafka://user:{SECRET}@", "it names no host", id="credentials-without-host"),
        pytest.param(f"kafka://user:{SECRET}", "host number 1 is not 'name'", id="forgotten-host"),
        pytest.param("kafka://a..b", "host number 1 is not 'name'", id="empty-label"),
        pytest.param("kafka://[:::::]:1", "host number 1 is not 'name'", id="no-ipv6-address"),
        pytest.param("kafka://a,,b", "host number 2 is not 'name'", id="empty-host"),
        pytest.param("kafka://a:1,b:x", "host number 2 is not 'name'", id="port-not-a-number"),
        pytest.param("kafka://a:", "host number 1 is not 'name'", id="empty-port"),
        pytest.param("kafka://a:0", "the port of host number 1 is not between 1 and 65535", id="port-zero"),
        pytest.param(
            "kafka://a,b:65536", "the port of host number 2 is not between 1 and 65535", id="port-too-big"
        ),
        pytest.param("kafka://::1:9092", "host number 1 is not 'name'", id="ipv6-without-brackets"),
        pytest.param("kafka://a:\u0661", "host number 1 is not 'name'", id="unicode-digit"),
        pytest.param(f"kafka://:{SECRET}@host", "the user name before '@' is empty", id="no-user"),
        pytest.param(
            f"kafka://user:{SECRET}/x@host", "only one '@' may stand in it", id="raw-slash-in-password"
        ),
        pytest.param(
            f"kafka://user:{SECRET}?x@host",
            "only one '@' may stand in it",
            id="raw-question-mark-in-password",
        ),
        pytest.param(
            f"kafka://user:{SECRET}@x@host", "only one '@' may stand in it", id="raw-at-in-password"
        ),
        pytest.param(
            f"kafka://user:{SECRET}#x@host", "must be percent-encoded ('#' as %23)", id="raw-hash-in-password"
        ),
        pytest.param(f"kafka://user:{SECRET} @host", "spaces, control characters", id="space"),
        pytest.param("kafka://host\n", "spaces, control characters", id="trailing-newline"),
        pytest.param(f"kafka://user:{SECRET}%zz@host", "a literal '%' is written %25", id="bad-escape"),
        pytest.param(f"kafka://user:{SECRET}%ff@host", "must be UTF-8", id="not-utf-8"),
        pytest.param("kafka://host?a=1&b=2&a=3", "the option 'a' is given twice", id="duplicate-option"),
        pytest.param(
            "kafka://host?a=1&%61=3", "the option 'a' is given twice", id="duplicate-encoded-option"
        ),
        pytest.param("kafka://host?a", "options are written ?name=value", id="option-without-value"),
        pytest.param("kafka://host?=1", "options are written ?name=value", id="option-without-name"),
        pytest.param("kafka://host?a=1&", "options are written ?name=value", id="trailing-ampersand"),
        pytest.param(None, "expected a str such as 'kafka://localhost:9092', got NoneType", id="none"),
    ],
)
def test_refused_with_the_rule_and_without_the_password(value: str, rule: str) -> None:
    with pytest.raises(InvalidUrl) as raised:
        DispatcherUrl.parse(value)
    assert rule in str(raised.value)
    assert rule in raised.value.rule
    assert SECRET not in str(raised.value)
    assert SECRET not in repr(raised.value)
    assert SECRET not in repr(vars(raised.value))
    assert raised.value.__cause__ is None


def test_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"^invalid dispatcher URL kafka://…: it names no host") as raised:
        DispatcherUrl.parse("kafka://")
    assert raised.value.code == "CONFIG.URL"
    assert isinstance(raised.value, ValueError)


def test_a_wrong_scheme_names_the_right_ones() -> None:
    with pytest.raises(InvalidUrl, match="expected the scheme 'nats', 'nats\\+tls', got 'kafka'"):
        DispatcherUrl.parse("kafka://host", schemes=("nats", "nats+tls"))


def test_a_parsed_url_is_taken_as_it_is_but_its_scheme_is_checked() -> None:
    url = DispatcherUrl.parse("kafka://host")
    assert DispatcherUrl.parse(url, schemes=("kafka",)) is url
    with pytest.raises(InvalidUrl, match="expected the scheme 'nats'"):
        DispatcherUrl.parse(url, schemes=("nats",))


def test_unknown_options_are_refused_naming_the_known_ones() -> None:
    url = DispatcherUrl.parse("kafka://host?client_id=a&clint_id=hidden")
    with pytest.raises(InvalidUrl) as raised:
        url.take("client_id", "sasl_mechanism")
    assert str(raised.value).endswith(
        "unknown option 'clint_id'; the known ones are 'client_id', 'sasl_mechanism'"
    )
    assert "hidden" not in str(raised.value)
    with pytest.raises(InvalidUrl, match="unknown option 'client_id', 'clint_id'; it takes none"):
        url.take()


def test_known_options_are_handed_over_when_given() -> None:
    assert DispatcherUrl.parse("kafka://host?a=1").take("a", "b") == {"a": "1"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("kafka://user:secret@a:1,[::1]/p?x=hidden&y=2", "kafka://user:***@a:1,[::1]/p?x=***&y=***"),
        ("nats://token@a", "nats://***@a"),
        ("nats://a", "nats://a"),
    ],
)
def test_str_and_repr_mask_what_may_be_secret(value: str, shown: str) -> None:
    url = DispatcherUrl.parse(value)
    assert str(url) == shown
    assert f"{url!r}" == f"DispatcherUrl({shown!r})"


def test_cannot_be_changed() -> None:
    url = DispatcherUrl.parse("kafka://host?a=1")
    with pytest.raises(AttributeError):
        url.password = "x"  # type: ignore[misc]
    with pytest.raises(TypeError):
        url.options["a"] = "2"  # type: ignore[index]
    assert hash(url) == hash(DispatcherUrl.parse("kafka://host?a=1"))


@given(st.text(max_size=60))
def test_any_text_is_either_read_or_refused_as_invalid(text: str) -> None:
    for value in (text, f"kafka://{text}", f"kafka://user:{text}@host"):
        try:
            url = DispatcherUrl.parse(value)
        except InvalidUrl:
            continue
        assert url.hosts


def test_what_can_be_logged_is_one_line() -> None:
    url = DispatcherUrl.parse(f"amqp://o%0ap:{SECRET}@host/a%00b%1b?c%0d=1")
    assert str(url) == "amqp://o%0Ap:***@host/a%00b%1B?c%0D=***"
    assert (url.username, url.path) == ("o\np", "a\0b\x1b")
