"""Finding the dispatcher of a URL through the entry points of what is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from outbox_core import dispatcher
from outbox_core.dispatcher import load_dispatcher
from outbox_core.errors import ConfigError, InvalidUrl, MissingExtra

MODULE = """
class Dispatcher:
    def __init__(self, url): self.url = url
    async def dispatch(self, message): ...
class Secure(Dispatcher): ...
def nonsense(url): return url
"""

Install = Callable[[str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a distribution with these entry points where Python looks for installed ones, and nothing else."""

    def install(entries: str) -> None:
        (tmp_path / "outbox_fake.py").write_text(MODULE)
        metadata = tmp_path / "outbox_fake-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: outbox-fake\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[outbox.dispatchers]\n{entries}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "outbox_fake", raising=False)

    return install


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "entry_points", lambda **_: [])


def test_the_scheme_names_the_entry_point(install: Install) -> None:
    install("fake = outbox_fake:Dispatcher\nfake+ssl = outbox_fake:Secure")
    url = "fake://guest@127.0.0.1/?exchange=events"
    made = load_dispatcher(url)
    assert (type(made).__name__, made.url) == ("Dispatcher", url)  # type: ignore[attr-defined]
    assert type(load_dispatcher("fake+ssl://host")).__name__ == "Secure"
    assert type(load_dispatcher("fake+other://host")).__name__ == "Dispatcher"


def test_an_unknown_scheme_names_those_that_are_known(install: Install) -> None:
    install("fake = outbox_fake:Dispatcher")
    with pytest.raises(
        InvalidUrl, match=r"no installed package dispatches to 'pulsar'; .*\bfake\b"
    ) as raised:
        load_dispatcher("pulsar://user:secret@host")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("scheme", "extra"),
    [
        ("kafka", "kafka"),
        ("kafka+ssl", "kafka"),
        ("nats", "nats"),
        ("nats+tls", "nats"),
        ("amqp", "amqp"),
        ("amqps", "amqp"),
    ],
)
@pytest.mark.usefixtures("nothing_installed")
def test_an_adapter_that_is_not_installed_comes_with_its_command(scheme: str, extra: str) -> None:
    with pytest.raises(MissingExtra) as raised:
        load_dispatcher(f"{scheme}://user:secret@host")
    assert f"pip install 'outbox-core[{extra}]'" in str(raised.value)
    assert f"{scheme}://" in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("url", ["", "kafka", "localhost:9092", "Kafka://host", 5, None])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrl):
        load_dispatcher(url)


def test_an_entry_point_that_makes_something_else(install: Install) -> None:
    install("fake = outbox_fake:nonsense")
    with pytest.raises(ConfigError, match="outbox_fake:nonsense made a str"):
        load_dispatcher("fake://host")
