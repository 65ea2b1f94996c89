"""Finding the store of a database URL by its scheme."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outbox_core import Relay, stores
from outbox_core.errors import ConfigError
from outbox_core.store_backend import StoreBackend
from outbox_core.stores.memory import MemoryStore
from outbox_core.stores.postgres.backend import PostgresBackend

MODULE = """
from outbox_core.stores.memory import MemoryStore

class Backend:
    schema = None
    def __init__(self, url): self.url = url
    def flaw(self): return "it names no database" if self.url.endswith("/") else None
    def store_factory(self, options, connect=None):
        self.options, self.connect = options, connect
        return MemoryStore
    def admin_store(self, *tables, timeout=30.0, connect=None): ...
    def checks(self, options, connect=None): ...
    def session(self, *, name, timeout): ...
    def translating(self, table, action): ...

class Exact(Backend): ...

def nonsense(url): return 7
"""

Install = Callable[[str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a distribution with these entry points where Python looks for installed ones."""

    def install(entries: str) -> None:
        (tmp_path / "outbox_fake_store.py").write_text(MODULE)
        metadata = tmp_path / "outbox_fake_store-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: outbox-fake-store\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[outbox.stores]\n{entries}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "outbox_fake_store", raising=False)

    return install


@pytest.mark.parametrize("url", ["postgresql://app@db/shop", "postgres://app@db/shop"])
def test_postgresql_is_built_in(url: str) -> None:
    backend = stores.for_url(url)
    assert isinstance(backend, PostgresBackend)
    assert isinstance(backend, StoreBackend)
    assert stores.flaw(url) is None


def test_an_entry_point_adds_a_scheme_and_its_drivers(install: Install) -> None:
    install("fake = outbox_fake_store:Backend\nfake+exact = outbox_fake_store:Exact")
    assert type(stores.for_url("fake://app@db/shop")).__name__ == "Backend"
    assert type(stores.for_url("fake+driver://app@db/shop")).__name__ == "Backend"
    assert type(stores.for_url("fake+exact://app@db/shop")).__name__ == "Exact"
    assert stores.flaw("fake://app@db/shop") is None
    assert stores.flaw("fake://app@db/") == "it names no database"


def test_a_relay_takes_its_store_from_the_entry_point(install: Install) -> None:
    async def ignore(_: object) -> None: ...

    install("fake = outbox_fake_store:Backend")
    relay = Relay("fake://db/shop", table="orders_outbox", dispatcher=ignore, connect={"any": 1})
    made: Any = relay._make_store()
    assert isinstance(made, MemoryStore)


def test_an_unknown_scheme_is_named_with_the_known_ones_and_what_to_install(install: Install) -> None:
    install("fake = outbox_fake_store:Backend")
    with pytest.raises(ConfigError) as raised:
        stores.for_url("oracle://app:CANARY@db/shop")
    assert str(raised.value) == (
        "no installed package stores messages in oracle://; the known schemes are fake, postgres, postgresql. Install"
        " the package of that store, which declares 'oracle' as an entry point of the group outbox.stores"
    )


@pytest.mark.parametrize(
    "url", ["app:CANARY@db/shop", "CANARY", "", "PostgreSQL://CANARY", "://CANARY", None]
)
def test_what_has_no_scheme_is_refused_without_showing_it(url: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        stores.for_url(url)
    assert str(raised.value) == "the database URL must be a str that begins with postgresql://"


@pytest.mark.parametrize("url", ["oracle://app:CANARY@db/shop", "app:CANARY@db/shop", ""])
def test_a_url_of_no_known_store_is_told_how_one_begins(url: str) -> None:
    wrong = stores.flaw(url)
    assert wrong == "it must begin with postgresql://, as in postgresql://user:password@host:5432/name"


def test_an_entry_point_that_makes_something_else_is_refused(install: Install) -> None:
    install("fake = outbox_fake_store:nonsense")
    with pytest.raises(ConfigError, match=r"the entry point fake of the group .* made a int, which is no"):
        stores.for_url("fake://db")


def test_importing_the_library_loads_no_driver() -> None:
    program = "import sys, outbox_core, outbox_core.stores; sys.exit('asyncpg' in sys.modules)"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=30)
