"""What a run of ``outbox relay --once`` came to, from what was told of it."""

from __future__ import annotations

import pytest

from outbox_core.cli.failures import ExitCode, exit_code
from outbox_core.cli.once import LedElsewhere, NotDelivered, Tally
from outbox_core.errors import StorageUnavailable
from outbox_core.observer import BreakerClosed, BreakerOpened, LeaderGained, Reconnecting
from outbox_core.table import TableName

ORDERS, INVOICES = TableName("shop", "orders_outbox"), TableName("shop", "invoices_outbox")


def test_a_destination_that_came_back_is_no_failure() -> None:
    tally = Tally()
    tally(LeaderGained(ORDERS, 1))
    tally(BreakerOpened(ORDERS, "nats", "PROVIDER.UNAVAILABLE no answer", 1.0))
    tally(BreakerClosed(ORDERS, "nats", 0.5))
    assert tally.conclude(3, [ORDERS], single_active=True) == "3 message(s) published, 0 put off, 0 dead"


def test_a_destination_that_is_away_in_the_end_is_one_although_something_was_published() -> None:
    tally = Tally()
    tally(LeaderGained(ORDERS, 1))
    tally(BreakerOpened(ORDERS, "nats", "PROVIDER.UNAVAILABLE no answer", 1.0))
    with pytest.raises(NotDelivered, match="3 message"):
        tally.conclude(3, [ORDERS], single_active=True)


def test_a_table_that_is_not_led_because_the_database_is_in_trouble() -> None:
    tally = Tally()
    tally(LeaderGained(ORDERS, 1))
    tally(Reconnecting(INVOICES, "the database did not answer", 1.0))
    with pytest.raises(StorageUnavailable, match=r"shop\.invoices_outbox could not be delivered") as raised:
        tally.conclude(3, [ORDERS, INVOICES], single_active=True)
    assert exit_code(raised.value) is ExitCode.DATABASE
    tally(LeaderGained(INVOICES, 1))
    assert tally.conclude(3, [ORDERS, INVOICES], single_active=True).startswith("3 message(s) published")


def test_each_table_that_another_relay_leads_is_named() -> None:
    tally = Tally()
    with pytest.raises(LedElsewhere, match=r"leads shop\.orders_outbox, shop\.invoices_outbox"):
        tally.conclude(0, [ORDERS, INVOICES], single_active=True)
    assert tally.conclude(0, [ORDERS, INVOICES], single_active=False)
