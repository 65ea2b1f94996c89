"""The root's public names: few, sorted, real."""

from __future__ import annotations

import importlib

import pytest

import outbox_core


def test_at_most_twenty_names() -> None:
    assert len(outbox_core.__all__) <= 20


@pytest.mark.parametrize("package", ["outbox_core", "outbox_amqp", "outbox_kafka", "outbox_nats"])
def test_names_are_sorted_unique_and_importable(package: str) -> None:
    module = importlib.import_module(package)
    names: list[str] = module.__all__
    assert names
    # Classes first, as the linter sorts them.
    assert names == sorted(set(names), key=lambda name: (name[0].islower(), name.casefold()))
    for name in names:
        assert not name.startswith("_")
        assert getattr(module, name).__doc__, name


def test_nothing_public_is_left_out_of_the_list() -> None:
    public = {
        name
        for name, value in vars(outbox_core).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("outbox_core.")
    }
    assert public == set(outbox_core.__all__)


def test_former_names_can_still_be_imported() -> None:
    from outbox_core.stores.postgres.admin_store import PostgresAdminStore
    from outbox_core.stores.postgres.upkeep import PostgresUpkeep
    from outbox_core.testing.contracts.store import AdminStoreContract, UpkeepContract

    assert PostgresUpkeep is PostgresAdminStore
    assert UpkeepContract is AdminStoreContract
