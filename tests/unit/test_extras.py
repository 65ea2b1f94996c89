"""Missing extras: one clear error with the exact command, and only for what this library declares."""

from __future__ import annotations

import importlib
import sys

import pytest

from outbox_core.errors import ConfigError, MissingExtra, OutboxError
from outbox_core.extras import install_command, needs_extra


def without(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Make ``import module`` fail as it does when the package is not installed."""
    for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)

    class Absent:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == module:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])


def test_names_the_feature_the_package_and_the_exact_command(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "psycopg")
    with (
        pytest.raises(MissingExtra) as raised,
        needs_extra("psycopg", feature="enqueue on a psycopg connection"),
    ):
        importlib.import_module("psycopg")
    assert str(raised.value) == (
        "enqueue on a psycopg connection needs the package 'psycopg', which is not installed."
        " Install it with: pip install 'outbox-core[psycopg]'"
    )
    assert raised.value.extra == "psycopg"
    assert raised.value.command == "pip install 'outbox-core[psycopg]'"
    assert raised.value.name == "psycopg"
    assert isinstance(raised.value.__cause__, ModuleNotFoundError)


def test_is_an_import_error_and_a_configuration_error() -> None:
    assert issubclass(MissingExtra, ImportError)
    assert issubclass(MissingExtra, ConfigError)
    assert issubclass(MissingExtra, OutboxError)


def test_the_package_is_named_as_the_index_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "prometheus_client")
    with (
        pytest.raises(MissingExtra, match="needs the package 'prometheus-client'"),
        needs_extra("prometheus", feature="metrics"),
    ):
        importlib.import_module("prometheus_client")


def test_something_else_missing_inside_the_package_passes_through() -> None:
    inner = ModuleNotFoundError("No module named 'libpq_of_psycopg'", name="libpq_of_psycopg")
    with pytest.raises(ModuleNotFoundError) as raised, needs_extra("psycopg", feature="enqueue"):
        raise inner
    assert raised.value is inner


def test_other_import_errors_pass_through() -> None:
    inner = ImportError("cannot import name 'x' from 'psycopg'", name="psycopg")
    with pytest.raises(ImportError) as raised, needs_extra("psycopg", feature="enqueue"):
        raise inner
    assert raised.value is inner


def test_nothing_happens_when_the_package_is_there() -> None:
    with needs_extra("psycopg", feature="enqueue"):
        module = importlib.import_module("json")
    assert module.loads("1") == 1


def test_the_command_is_quoted_for_shells() -> None:
    assert install_command("kafka") == "pip install 'outbox-core[kafka]'"
