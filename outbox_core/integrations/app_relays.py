"""The relays that live inside a web application: they start with it, stop with it, and never die unnoticed."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias, cast

from outbox_core.config import Settings
from outbox_core.errors import ConfigError, InvalidSettings, OutboxError
from outbox_core.integrations.health import AppHealth
from outbox_core.relay import Relay
from outbox_core.relay.health import HealthLimits
from outbox_core.relay.relay import DEFAULT_GRACE

if TYPE_CHECKING:
    from outbox_core.dispatcher import Dispatcher
    from outbox_core.message import DispatchedMessage
    from outbox_core.observer import Observer

Given: TypeAlias = Relay | Sequence[Relay] | Settings
"""A relay, several, or what settings ask for; an empty sequence is none in this process."""
Source: TypeAlias = Given | Callable[[], Given | Awaitable[Given]] | None
"""Or a function that is called at every start and makes them; what it raises is an error of the start. Or none."""

_LIMITS: Final = HealthLimits()
_FIRST_RETRY: Final = 1.0
_LONGEST_RETRY: Final = 60.0
_FAILED_START_GRACE: Final = 1.0
_logger: Final = logging.getLogger("outbox_core.integrations")


class AppRelays:
    """The relays of one process of an application::

        relays = AppRelays(Relay(dsn, table="orders_outbox", dispatcher=publish))
        relays = AppRelays(Settings.from_env)       # whether there is one, and which, the environment says

    None says that no relay runs in this process. A function must say so with an empty sequence: one that returns None
    has most likely forgotten its ``return``. Settings say so with ``OUTBOX_RELAY_ENABLED=false``, or with no table; a
    destination without a table is a mistake, and an error of the start.

    With ``on_start_error="fail"`` whatever keeps a relay from starting keeps the application from starting, with that
    one error. ``"degrade"`` lets it serve: the error is logged as critical, `health` is not ready, and the start is
    tried again after 1 s and then ever less often, at least once a minute.

    In the end all relays stop at once and by one deadline, within ``grace`` + 1 s: 20 s unless the settings or you say
    otherwise. Every process of the server runs them; with ``single_active`` one leads each table, the others stand by.

    ``dispatcher`` and ``observers`` are for the relay that settings ask for; without a dispatcher it is the one that
    ``OUTBOX_RELAY_TO`` names. ``limits`` say from where on `health` calls a relay lagging.
    """

    def __init__(
        self,
        relays: Source,
        *,
        dispatcher: Dispatcher | Callable[[DispatchedMessage], Awaitable[None]] | None = None,
        observers: Sequence[Observer] = (),
        grace: float | None = None,
        on_start_error: Literal["fail", "degrade"] = "fail",
        limits: HealthLimits = _LIMITS,
    ) -> None:
        if on_start_error not in ("fail", "degrade"):
            raise ConfigError(f"on_start_error must be 'fail' or 'degrade', got {on_start_error!r}")
        self._source = relays
        self._dispatcher = dispatcher
        self._observers = observers
        self._grace = grace
        self._limits = limits
        self._degrades = on_start_error == "degrade"
        self._stop_within = DEFAULT_GRACE
        self._relays: tuple[Relay, ...] = ()
        self._phase: Literal["not started", "started", "stopping"] = "not started"
        self._problem: str | None = None
        self._retrying: asyncio.Task[None] | None = None

    @property
    def relays(self) -> tuple[Relay, ...]:
        """The relays that run; none before the start and after the end."""
        return self._relays

    async def start(self) -> None:
        """Start them all; raises what keeps one of them from starting, unless told to degrade."""
        if self._phase != "not started":
            raise ConfigError("these relays run already: make one AppRelays for each application")
        self._phase = "started"
        try:
            await self._start_all()
        except BaseException as error:
            if not self._degrades or not isinstance(error, Exception):
                self._phase = "not started"
                error.add_note("This kept the application from starting: its outbox relay could not start.")
                raise
            self._failed(error, _FIRST_RETRY)
            self._retrying = asyncio.create_task(self._keep_trying(), name="outbox-relay-start")

    async def stop(self) -> None:
        """Stop them all, within the grace and a second. Does nothing when they do not run."""
        if self._phase != "started":
            return
        self._phase = "stopping"
        try:
            retrying, self._retrying = self._retrying, None
            if retrying is not None:
                retrying.cancel()
                await asyncio.wait([retrying], timeout=self._stop_within + 1.0)
            await _stop(self._relays, self._stop_within)
        finally:
            self._phase, self._relays, self._problem = "not started", (), None

    def health(self) -> AppHealth:
        """How they are now; asks nobody, so it may be called as often as one likes."""
        relays = tuple(relay.health(self._limits) for relay in self._relays)
        up = self._phase == "started"
        reasons = [] if up else [f"the application's relays are {self._phase}"]
        if self._problem is not None:
            reasons.append(f"the relay could not start: {self._problem}")
        reasons += [reason for relay in relays for reason in relay.reasons]
        return AppHealth(
            # Relays that are to stop come to an end: that is no death.
            live=not up or all(relay.live for relay in relays),
            ready=up and self._problem is None and all(relay.ready for relay in relays),
            lagging=any(relay.lagging for relay in relays),
            reasons=tuple(reasons),
            relays=relays,
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _start_all(self) -> None:
        relays = await self._made()
        started: list[Relay] = []
        try:
            for relay in relays:
                await relay.start()
                started.append(relay)
        except BaseException:
            await _stop(started, _FAILED_START_GRACE)
            raise
        self._relays = relays

    async def _made(self) -> tuple[Relay, ...]:
        given: object = await self._given()
        self._stop_within = DEFAULT_GRACE if self._grace is None else self._grace
        if isinstance(given, Settings):
            if self._grace is None:
                self._stop_within = given.relay_grace
            given = self._asked_for(given)
        elif self._dispatcher is not None or self._observers:
            raise ConfigError(
                "dispatcher and observers are for a relay made from settings; give them to the Relay itself"
            )
        if given is None:
            return ()
        if isinstance(given, Relay):
            return (given,)
        found = type(given).__name__
        if isinstance(given, Sequence) and not isinstance(given, str | bytes):
            several = tuple(cast("Sequence[object]", given))
            if all(isinstance(each, Relay) for each in several):
                return cast("tuple[Relay, ...]", several)
        raise ConfigError(
            f"expected a Relay, a sequence of them, Settings, None or a function that makes one of these,"
            f" got {found}"
        )

    async def _given(self) -> object:
        if not callable(self._source):
            return self._source
        made = cast("object", self._source())
        if inspect.isawaitable(made):
            made = cast("object", await made)
        if made is None:
            raise ConfigError(
                "the function that makes the application's relays returned None; return a Relay, several or"
                " Settings, or () when none is to run in this process"
            )
        return made

    def _asked_for(self, settings: Settings) -> Relay | None:
        if settings.relay_enabled and not settings.relay_tables:
            if settings.relay_to is not None or self._dispatcher is not None:
                where = "the dispatcher" if settings.relay_to is None else "OUTBOX_RELAY_TO"
                problem = (
                    f"{where} says where messages go and OUTBOX_RELAY_TABLES names no table, so nothing would be"
                    " delivered: name the tables, or set OUTBOX_RELAY_ENABLED=false"
                )
                raise InvalidSettings([problem])
            _logger.warning(
                "no outbox relay runs in this process: OUTBOX_RELAY_TABLES names no table"
                " (OUTBOX_RELAY_ENABLED=false says that this is meant)"
            )
        return settings.make_relay(self._dispatcher, observers=self._observers)

    async def _keep_trying(self) -> None:
        wait = _FIRST_RETRY
        while True:
            await asyncio.sleep(wait)
            try:
                await self._start_all()
            except Exception as error:
                wait = min(2 * wait, _LONGEST_RETRY)
                self._failed(error, wait)
            else:
                self._problem = None
                _logger.warning("the outbox relay has started now: the application is not degraded any more")
                return

    def _failed(self, error: Exception, retry_in: float) -> None:
        # Health may be read by anybody: an error's text, which can have names of hosts, is for the log.
        code = f" ({error.code})" if isinstance(error, OutboxError) else ""
        self._problem = f"{type(error).__name__}{code}; the log says more"
        _logger.critical(
            "the application runs without its outbox relay, which could not start and is tried again in %g s: %s: %s",
            retry_in,
            type(error).__name__,
            error,
            exc_info=None if isinstance(error, OutboxError) else error,
        )


async def _stop(relays: Sequence[Relay], grace: float) -> None:
    """All at once, so that there is one deadline; trouble with one does not keep the others from stopping."""
    outcomes = await asyncio.gather(*(relay.stop(grace) for relay in relays), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            _logger.error("the outbox relay did not stop in order", exc_info=outcome)
