"""The order service: writes an order and enqueues its event in one transaction, and sometimes rolls both back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.demo.database import OUTBOX_TABLE, query, session
from outbox_core.message import Message
from outbox_core.outbox import Outbox

if TYPE_CHECKING:
    from uuid import UUID

    from asyncpg import Connection

    from outbox_core.demo.plan import Plan
    from outbox_core.demo.stage import Figures

TOPIC: Final = "orders.order.placed.v1"
_CLERKS: Final = 4
_CUSTOMERS: Final = 50


class PaymentRefused(Exception):
    """Raised inside the transaction, after order and event are written: both must disappear."""


class OrderService:
    """Takes orders until it is closed, and remembers what it was told of each."""

    def __init__(self, url: str, plan: Plan, figures: Figures) -> None:
        self.acknowledged: set[UUID] = set()
        self.rolled_back: set[UUID] = set()
        self._url = url
        self._plan = plan
        self._figures = figures
        self._outbox = Outbox(OUTBOX_TABLE)
        self._number = 0
        self._open = True
        self._gone = anyio.Event()

    async def close(self) -> None:
        """Take no more orders, and return once those being written are done."""
        self._open = False
        await self._gone.wait()

    async def run(self) -> None:
        """Take orders, several at a time."""
        async with anyio.create_task_group() as tasks:
            for _ in range(_CLERKS):
                tasks.start_soon(self._serve)
        self._gone.set()

    async def _serve(self) -> None:
        interval = _CLERKS / self._plan.rate
        async with session(self._url) as connection:
            due = anyio.current_time()
            while self._open:
                self._number += 1
                await self._take(connection, self._number)
                due = max(due + interval, anyio.current_time())
                await anyio.sleep_until(due)

    async def _take(self, connection: Connection, number: int) -> None:
        customer, cents = f"customer-{number % _CUSTOMERS}", 100 + number
        message = Message(TOPIC, {"order": number, "cents": cents}, key=customer)
        try:
            async with connection.transaction():
                await connection.execute(query("insert_order"), message.event_id, customer, cents)
                await self._outbox.enqueue(connection, message)
                if number % self._plan.refused_every == 0:
                    raise PaymentRefused
        except PaymentRefused:
            self.rolled_back.add(message.event_id)
            self._figures.rolled_back += 1
        else:
            self.acknowledged.add(message.event_id)
            self._figures.enqueued += 1
