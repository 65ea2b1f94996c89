"""Named moments in a relay's work at which a test makes something happen to its process.

The moments are found by wrapping the store, the dispatcher and the observer; the library itself knows nothing of them.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

from outbox_core.errors import StorageTimeout
from outbox_core.store import Election, Lease, Leased, Store
from outbox_core.table import TableName
from tests.integration.relay.journal import Journal

T = TypeVar("T")
_TURNS_TO_SEND = 10
"""Turns of the event loop after which a statement on an open session is on its way to the server."""
_WRITES = ("claim", "claim_keys", "publish", "fail", "release", "undo_claim")


class Faults:
    """Does ``act`` when the ``nth`` time of a named moment comes, and writes that down first.

    Of the step that it ``loses`` one answer gets lost, the first with rows, and that is written down too.
    """

    def __init__(
        self,
        journal: Journal,
        point: str = "",
        nth: int = 1,
        act: signal.Signals = signal.SIGKILL,
        loses: str = "",
    ) -> None:
        self._journal = journal
        self._point = point
        self._nth = nth
        self._act = act
        self._loses = loses
        self._seen: Counter[str] = Counter()

    def reached(self, point: str) -> None:
        self._seen[point] += 1
        if point == self._point and self._seen[point] == self._nth:
            self._journal.write("fault", point=point)
            os.kill(os.getpid(), self._act)

    def expects(self, point: str) -> bool:
        return point == self._point

    async def around(
        self,
        name: str,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        changed: Callable[[T], bool] | None = None,
    ) -> T:
        """Do a step with its three moments: before it is sent, while the database may be at it, and after, which is one
        only if something ``changed``."""
        self.reached(f"{name}.before")
        if self.expects(f"{name}.during"):
            task = asyncio.ensure_future(work())
            for _ in range(_TURNS_TO_SEND):
                await asyncio.sleep(0)
            self.reached(f"{name}.during")
            result = await task
        else:
            result = await work()
        counts = changed is None or changed(result)
        if counts:
            self.reached(f"{name}.after")
        if counts and name == self._loses:
            self._loses = ""
            self._journal.write("lost", step=name)
            raise StorageTimeout(f"the answer to {name} was lost")
        return result


class FaultyStore:
    """A store with the moments around each of its writes; everything else is the store's own."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self._store = store
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._store, name)
        if name not in _WRITES:
            return value
        method = cast("Callable[..., Coroutine[Any, Any, Any]]", value)

        def step(*arguments: Any, **options: Any) -> Awaitable[Any]:
            # An empty claim, or the check of rights with nothing to write, is not the moment that is meant.
            if name not in ("claim", "claim_keys", "undo_claim") and not arguments[1]:
                return method(*arguments, **options)
            if name == "claim" and not arguments[1].limit:
                return method(*arguments, **options)
            return self._faults.around(
                name,
                lambda: method(*arguments, **options),
                changed=lambda result: _rows_changed(arguments[1], result) > 0,
            )

        return step

    def election(self, table: TableName) -> Election:
        return FaultyElection(self._store.election(table), self._faults)


def _rows_changed(given: Any, result: Leased | set[Lease] | int) -> int:
    """By a claim, by an undo, which counts them, or by a write of ``given`` leases, which names the lost ones."""
    if isinstance(result, Leased):
        return result.count
    return result if isinstance(result, int) else len(given) - len(result)


class FaultyElection:
    def __init__(self, election: Election, faults: Faults) -> None:
        self._election = election
        self._faults = faults

    async def campaign(self) -> int | None:
        return await self._faults.around("campaign", lambda: _run(self._election.campaign()))

    async def heartbeat(self, term: int) -> bool:
        return await self._faults.around("heartbeat", lambda: _run(self._election.heartbeat(term)))

    async def resign(self, term: int) -> None:
        await self._faults.around("resign", lambda: _run(self._election.resign(term)))


async def _run(work: Awaitable[T]) -> T:
    return await work
