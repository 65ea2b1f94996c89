"""What ``outbox relay`` runs: the relay, the cleaners it does not run itself, and the server of metrics and health."""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from outbox_core.cleaner import Cleaner
from outbox_core.cli.once import Tally
from outbox_core.cli.termination import until_terminated
from outbox_core.config.settings import DEFAULT_METRICS_PORT
from outbox_core.extras import needs_extra
from outbox_core.integrations.http import Route, health_routes, serve
from outbox_core.observers.logging import LoggingObserver
from outbox_core.stores import for_url

if TYPE_CHECKING:
    from outbox_core.config import Settings
    from outbox_core.observer import Observer
    from outbox_core.relay import Relay

_logger: Final = logging.getLogger("outbox_core.cli")


class Deliveries:
    """Everything the settings ask for, in one process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._routes: dict[str, Route] = {}
        self._tally = Tally()
        logs = settings.logs
        log = LoggingObserver(tenants=logs.tenants, secret=logs.tenants_secret.encode())
        observers: list[Observer] = [log, self._tally]
        if settings.metrics.on:
            observer, route = _metrics()
            observers.append(observer)
            self._routes[settings.metrics.path] = route
        self._observers = observers
        self._relay = settings.make_relay(observers=observers)
        if settings.cleaned_apart:
            settings.require("database_url")
        if self._relay is not None:
            self._routes |= health_routes(self._relay)

    async def once(self) -> None:
        """Deliver what is due, and say how much it was; raises what kept it from being delivered.

        SIGTERM breaks it off as Ctrl-C does: what is in hand is given back.
        """
        relay = self._relay
        if relay is None:
            _logger.warning("the relay is disabled (OUTBOX_RELAY_ENABLED); nothing is delivered")
            return
        published = await until_terminated(relay.run_once)
        single_active = relay.settings.single_active
        _logger.info("%s", self._tally.conclude(published, relay.tables, single_active=single_active))

    async def until_stopped(self) -> None:
        """Run until SIGTERM or SIGINT, or until the relay ends with an error, which is raised."""
        if self._relay is None and not self._settings.cleaned_apart:
            _logger.warning("relay and cleaner are disabled (OUTBOX_RELAY_ENABLED); there is nothing to run")
            return
        failure: Exception | None = None
        async with self._served(), anyio.create_task_group() as tasks:
            if self._settings.cleaned_apart:
                tasks.start_soon(self._clean)
            try:
                await (_until_signal() if self._relay is None else self._deliver(self._relay))
            except Exception as error:
                # Raised outside the task group, which would make a group of it.
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _deliver(self, relay: Relay) -> None:
        _logger.info("delivering %s", ", ".join(map(str, relay.tables)))
        await relay.run(grace=self._settings.relay_grace)

    async def _clean(self) -> None:
        settings, tables = self._settings, self._settings.cleaned_apart
        _logger.info("cleaning %s", ", ".join(map(str, tables)))
        database = settings.database_url or ""
        timeout = settings.relay.database_timeout
        async with (
            for_url(database).admin_store(*tables, timeout=timeout) as admin_store,
            anyio.create_task_group() as tasks,
        ):
            for table in tables:
                cleaner = Cleaner(admin_store, table, settings.cleaner, observers=self._observers)
                tasks.start_soon(cleaner.run)

    @asynccontextmanager
    async def _served(self) -> AsyncGenerator[None]:
        metrics = self._settings.metrics
        if not metrics.on and metrics.port is None:
            yield
            return
        port = DEFAULT_METRICS_PORT if metrics.port is None else metrics.port
        async with serve(metrics.host, port, self._routes) as address:
            paths = ", ".join(sorted(self._routes))
            _logger.info("serving http://%s:%d: %s", address.host, address.port, paths)
            yield


def _metrics() -> tuple[Observer, Route]:
    """An observer that keeps metrics, and the route that shows them."""
    with needs_extra("prometheus", feature="serving metrics"):
        from prometheus_client import CollectorRegistry

    from outbox_core.integrations.metrics import metrics_route
    from outbox_core.observers.prometheus import PrometheusObserver

    registry = CollectorRegistry()
    return PrometheusObserver(registry), metrics_route(registry)


async def _until_signal() -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        async for _ in received:
            return
