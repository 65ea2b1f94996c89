"""The relay as applications see it: inside a web application, as a process of its own, once, or until all is done."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from outbox_core.admin_store import HasAdminStore
from outbox_core.cleaner import CleanerSettings
from outbox_core.dispatcher import Dispatcher, as_dispatcher
from outbox_core.errors import ConfigError, RelayFailed
from outbox_core.monitor import MonitorSettings
from outbox_core.observers.logging import LoggingObserver
from outbox_core.relay.health import Health, HealthLimits, Vitals
from outbox_core.relay.maintenance import Maintenance
from outbox_core.relay.run import RelayState, Run
from outbox_core.relay.settings import RelaySettings, check_seconds
from outbox_core.runtime.signals import stop_on_signals
from outbox_core.store_backend import StoreOptions
from outbox_core.stores import for_url
from outbox_core.table import TableName

if TYPE_CHECKING:
    from outbox_core.meta import DispatchedMessage
    from outbox_core.observer import Observer
    from outbox_core.store import Store

_logger: Final = logging.getLogger("outbox_core.relay")
DEFAULT_GRACE: Final = 20.0
_CLEANER: Final = CleanerSettings()
_MONITOR: Final = MonitorSettings()
_LIMITS: Final = HealthLimits()


class Relay:
    """Delivers every committed message of one or more outbox tables, at least once.

        async with Relay(dsn, table="orders_outbox", dispatcher=publish):
            ...                     # runs in the background until the block ends

    ``dispatcher`` is an asynchronous function of a `DispatchedMessage` or a `Dispatcher`; one that is an asynchronous
    context manager is entered and left with the relay. Settings are those of `RelaySettings`, as keywords. ``connect``
    is passed to ``asyncpg.connect``. ``observers`` are notified of what happens, beside the log. While the relay runs
    it also deletes what was published longer ago than the ``cleaner``'s retention, 7 days by default; None leaves all
    of it. Every 15 s, or as ``monitor`` says, it checks how its tables stand, for its observers and `health`; None:
    never.

    A relay can be started again after it has stopped. It belongs to the event loop it was started on.
    """

    def __init__(
        self,
        dsn: str | Callable[[], Store],
        *,
        table: str | TableName | None = None,
        tables: Sequence[str | TableName] = (),
        dispatcher: Dispatcher | Callable[[DispatchedMessage], Awaitable[None]],
        observers: Sequence[Observer] = (),
        connect: Mapping[str, Any] | None = None,
        random: Callable[[], float] | None = None,
        cleaner: CleanerSettings | None = _CLEANER,
        monitor: MonitorSettings | None = _MONITOR,
        **settings: Any,
    ) -> None:
        self.settings = _settings(settings)
        self.tables = _tables(table, tables)
        self._dispatcher = as_dispatcher(dispatcher)
        self._observers = _with_log(_callables(observers))
        if random is not None and not callable(random):
            raise ConfigError(f"random must be a function that gives numbers from 0 to 1, got {random!r}")
        self._random = random
        self._maintenance = Maintenance.asked_for(cleaner, monitor)
        self._vitals = Vitals(self.tables, self.settings, None)
        self._make_store = dsn if callable(dsn) else self._store_factory(dsn, connect)
        self._run: Run | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> RelayState:
        """Where the relay is in its life."""
        return RelayState.STOPPED if self._run is None else self._run.state

    def health(self, limits: HealthLimits = _LIMITS) -> Health:
        """Say whether the relay lives, can do its work and keeps up, at once and without asking the database.

        The figures are those of its last check of the tables. For a probe that an orchestrator or a balancer calls.
        """
        task = self._task
        ended = None if task is None or not task.done() or task.cancelled() else task.exception()
        return self._vitals.health(self.state, ended, limits)

    async def start(self) -> None:
        """Start in the background and return once the relay is running; raises what keeps it from starting.

        When it is stopped meanwhile, that is `RelayFailed`: past this call you have a relay that ran.
        """
        run = self._begin()
        self._task = task = asyncio.create_task(run.main(), name="outbox-relay")
        try:
            await run.wait_until_running(task)
            task.add_done_callback(_log_death)
        except BaseException:
            self._task = None
            task.cancel()
            try:
                await asyncio.wait([task])
            finally:
                task.cancel()  # a second cancellation does not wait
            raise

    async def stop(self, grace: float = DEFAULT_GRACE) -> None:
        """Stop claiming, let what is in dispatch end, record it, release the rest; back within ``grace`` + 1 s.

        Does nothing when the relay is not running. A second call with a shorter grace shortens the first.
        """
        check_seconds("grace", grace)
        run = self._own_run()
        if run is not None:
            await run.stop(grace)

    async def wait(self) -> None:
        """Wait until the relay has stopped; raises `RelayFailed`, from the error, if one ended it in the background.

        What ends `run`, `run_once` or `drain` is raised there, and not here.
        """
        run = self._own_run()
        task = self._task
        if run is not None and (task is None or task.done()):
            await run.stopped.wait()
        if task is not None:
            if not task.done():
                await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()) is not None:
                raise RelayFailed("the relay ended with an error") from error

    async def run(self, *, grace: float = DEFAULT_GRACE, signals: bool = True) -> None:
        """Run in the foreground until cancelled or stopped. SIGTERM and SIGINT stop it, with ``grace``; each further
        one hurries it, as `stop` with 0 does.

        At the end their handlers are those that were there before. Only such as were set with the event loop's
        ``add_signal_handler`` cannot be read, so that they are lost: who has some passes ``signals=False``, and has
        them call `stop`.
        """
        check_seconds("grace", grace)
        run = self._begin()
        with stop_on_signals(run.request_stop, grace) if signals else nullcontext():
            await run.main(grace=grace)

    async def run_once(self, *, timeout: float = 300.0) -> int:
        """Deliver what is due, wait for its outcome and return how many messages were published: for a cron job.

        What is not begun after ``timeout`` seconds is left to the next time; what is in dispatch then may take its
        ``dispatch_timeout``. Tables that another relay leads are left to that.
        """
        check_seconds("timeout", timeout)
        run = self._begin()
        await run.drain(timeout, patient=False)
        return run.published

    async def drain(self, *, timeout: float = 60.0) -> int:
        """Deliver until nothing is due any more and return how many messages were published: for tests.

        Raises TimeoutError when that takes longer than ``timeout`` seconds: what is in dispatch then has a second to
        end. When the only destination is unavailable it returns: what is left is not due before that is tried again.
        """
        check_seconds("timeout", timeout)
        run = self._begin()
        if not await run.drain(timeout, patient=True):
            raise TimeoutError(
                f"not everything that is due was delivered within {timeout:g} s ({run.published} messages were):"
                " the dispatcher is slow, or another relay leads, or the database does not answer"
            )
        return run.published

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if error is None:
            await self.wait()

    def _own_run(self) -> Run | None:
        run = self._run
        alive = run is not None and run.state is not RelayState.STOPPED
        if run is not None and alive and run.loop is not asyncio.get_running_loop():
            raise ConfigError(
                "this relay runs on another event loop or in another process, which alone can stop it or wait for it;"
                " make a Relay for each"
            )
        return run

    def _begin(self) -> Run:
        self._own_run()
        if self._run is not None and self._run.state is not RelayState.STOPPED:
            raise ConfigError(
                f"this relay is already {self._run.state.value}; one object runs once at a time"
            )
        store, monitor = self._make_store(), self._maintenance.monitor
        measured_every = (
            monitor.interval if monitor is not None and isinstance(store, HasAdminStore) else None
        )
        self._vitals = Vitals(self.tables, self.settings, measured_every)
        self._task = None
        self._run = Run(
            self.tables,
            store,
            self.settings,
            self._dispatcher,
            (*self._observers, self._vitals),
            self._random,
            self._maintenance,
        )
        return self._run

    def _store_factory(self, url: str, connect: Mapping[str, Any] | None) -> Callable[[], Store]:
        options = StoreOptions(
            tables=self.tables,
            timeout=self.settings.database_timeout,
            takeover=self.settings.takeover,
            elections=self.settings.single_active,
            cleans=self._maintenance.cleaner is not None,
        )
        return for_url(url).store_factory(options, connect)


def _log_death(task: asyncio.Task[None]) -> None:
    """Log what ended a relay in the background: its starter may never ask."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _logger.critical(
            "the relay ended with %s; nothing is delivered until it is started again",
            type(error).__name__,
            exc_info=error,
        )


def _settings(given: Mapping[str, Any]) -> RelaySettings:
    known = set(RelaySettings.__slots__)
    unknown = sorted(given.keys() - known)
    if unknown:
        raise ConfigError(f"unknown relay setting {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    return RelaySettings(**given)


def _callables(observers: Sequence[Observer]) -> Sequence[Observer]:
    if callable(observers) or not all(map(callable, observers)):
        raise ConfigError(
            "observers must be a sequence of callables that take an event; write observers=[observer]"
        )
    for observer in observers:
        if inspect.iscoroutinefunction(observer) or inspect.iscoroutinefunction(type(observer).__call__):
            raise ConfigError(
                f"observer {getattr(observer, '__qualname__', type(observer).__qualname__)} is asynchronous, and the"
                " relay would not wait for it: observers are plain functions; put what takes time into a queue of yours"
            )
    return observers


def _with_log(observers: Sequence[Observer]) -> Sequence[Observer]:
    """The observers, with the log among them; a caller that brings its own decides how it is written."""
    logs = any(isinstance(observer, LoggingObserver) for observer in observers)
    return tuple(observers) if logs else (LoggingObserver(), *observers)


def _tables(table: str | TableName | None, tables: Sequence[str | TableName]) -> tuple[TableName, ...]:
    if isinstance(tables, str):
        raise ConfigError(f"tables must be a sequence of names, got the str {tables!r}; write table= for one")
    if (table is None) == (not tables):
        raise ConfigError("give either table= or tables=[…], with at least one table")
    parsed = tuple(TableName.parse(name) for name in ((table,) if table is not None else tables))
    if len(set(parsed)) != len(parsed):
        raise ConfigError(f"a table is named twice: {', '.join(map(str, parsed))}")
    return parsed
