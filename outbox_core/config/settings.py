"""Everything that can be set from the environment, read and checked at once."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from outbox_core.cleaner import CleanerSettings
from outbox_core.config.kinds import Refused
from outbox_core.config.variables import OURS_IN_TESTS, PREFIX, VARIABLES
from outbox_core.dispatcher import load_dispatcher
from outbox_core.errors import ConfigError, InvalidSettings
from outbox_core.redaction import Masking, tenant_mask
from outbox_core.relay import Relay
from outbox_core.relay.settings import RelaySettings

if TYPE_CHECKING:
    from outbox_core.dispatcher import Dispatcher
    from outbox_core.message import DispatchedMessage
    from outbox_core.observer import Observer
    from outbox_core.table import TableName

DEFAULT_METRICS_PORT: Final = 9464
_GRACE: Final = 20.0
_logger: Final = logging.getLogger("outbox_core.config")


class Problem(NamedTuple):
    """Something wrong with variables: their names, and a text with values and what is accepted, without secrets."""

    variables: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Where ``outbox relay`` serves metrics and health; on this host alone unless it is told otherwise."""

    enabled: bool | None = None
    """None: when a port is given."""
    path: str = "/debug/prometheus"
    host: str = "127.0.0.1"
    port: int | None = None

    @property
    def on(self) -> bool:
        """Whether metrics are served."""
        return self.port is not None if self.enabled is None else self.enabled


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """How ``outbox relay`` logs."""

    format: str = "text"
    level: str = "info"
    tenants: Masking = "off"
    """How tenants are written: ``off`` shows them, ``hash`` a short hash, ``drop`` nothing."""
    tenants_secret: str = field(default="", repr=False)
    """What goes into the hash, so that nobody who knows the tenants can tell whose it is; 64 bytes at most."""

    def __post_init__(self) -> None:
        tenant_mask(self.tenants, self.tenants_secret.encode())


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings:
    """What the environment says. Secrets stay out of its ``repr`` and of every message."""

    database_url: str | None = None
    relay_enabled: bool = True
    relay_tables: tuple[TableName, ...] = ()
    relay_to: str | None = None
    relay_grace: float = _GRACE
    relay: RelaySettings = field(default_factory=RelaySettings)
    cleaner: CleanerSettings = field(default_factory=CleanerSettings)
    cleaner_tables: tuple[TableName, ...] = ()
    """None named: the relay's."""
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    logs: LogSettings = field(default_factory=LogSettings)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read every variable of `VARIABLES`; one that is empty counts as not set.

        Raises `InvalidSettings` with all that is wrong. Logs a warning for each ``OUTBOX_*`` name nobody knows.
        """
        given = os.environ if environ is None else environ
        for unknown in unknown_variables(given):
            _logger.warning("%s", unknown)
        settings, problems = cls.read(given)
        if problems:
            raise InvalidSettings([problem.text for problem in problems])
        return settings

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> tuple[Settings, list[Problem]]:
        """What can be read, with the default in place of what cannot, and all that is wrong: for looking into it."""
        values: dict[str, Any] = {}
        problems: list[Problem] = []
        wrong: set[str] = set()
        for variable in VARIABLES:
            text = environ.get(variable.name, "").strip()
            if not text:
                continue
            try:
                values[variable.place] = variable.kind.parse(text)
            except ValueError as error:
                more = f" ({error})" if isinstance(error, Refused) else ""
                shown = variable.kind.show(text)
                problem = f"{variable.name}={shown}: expected {variable.kind.accepted}{more}"
                problems.append(Problem((variable.name,), problem))
                wrong.add(_part(variable.place))
        if values.get("cleaner.dead_retention") == 0:
            values["cleaner.dead_retention"] = None
        parts: dict[str, Any] = {place: value for place, value in values.items() if "." not in place}
        for part, kind in _PARTS.items():
            own = {place.partition(".")[2]: each for place, each in values.items() if _part(place) == part}
            try:
                parts[part] = kind(**own)
            except ConfigError as error:
                # With a value missing, what the others add up to cannot be judged.
                if part not in wrong:
                    problems.append(_together(part, own, error))
        return cls(**parts), problems

    @property
    def cleaned_apart(self) -> tuple[TableName, ...]:
        """The tables that need a `Cleaner` of their own, because the relay's would not clean just these."""
        wanted = self.cleaner_tables or (self.relay_tables if not self.relay_enabled else ())
        alike = self.relay_enabled and set(wanted) == set(self.relay_tables)
        return wanted if self.cleaner.enabled and not alike else ()

    def require(self, *places: str) -> None:
        """Raise `InvalidSettings` with every one of these that is not set, such as ``database_url``."""
        missing = [
            f"{variable.name} is not set: it must be {variable.kind.accepted}"
            for variable in VARIABLES
            if variable.place in places and attrgetter(variable.place)(self) is None
        ]
        if missing:
            raise InvalidSettings(missing)

    def make_relay(
        self,
        dispatcher: Dispatcher | Callable[[DispatchedMessage], Awaitable[None]] | None = None,
        *,
        observers: Sequence[Observer] = (),
        **more: Any,
    ) -> Relay | None:
        """The relay these settings ask for; None when it is not enabled or no table is named.

        Without ``dispatcher`` it is the one that ``relay_to`` names. ``more`` are further arguments of `Relay`. Unless
        other tables are to be cleaned (``cleaned_apart``), the relay cleans its own.
        """
        if not self.relay_enabled or not self.relay_tables:
            return None
        self.require("database_url", *(["relay_to"] if dispatcher is None else []))
        return Relay(
            self.database_url or "",
            tables=self.relay_tables,
            dispatcher=load_dispatcher(self.relay_to or "") if dispatcher is None else dispatcher,
            observers=observers,
            cleaner=None if self.cleaned_apart else self.cleaner,
            **{each.name: getattr(self.relay, each.name) for each in fields(self.relay)},
            **more,
        )

    def as_env(self, *, secrets: bool = False) -> dict[str, str]:
        """The variables that make these settings, with defaults; ``secrets`` leaves passwords in."""
        written: dict[str, str] = {}
        for variable in VARIABLES:
            value: object = attrgetter(variable.place)(self)
            if value is None and variable.place != "cleaner.dead_retention":
                continue
            text = variable.kind.write(value)
            written[variable.name] = text if secrets else variable.kind.show(text)
        return written

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={text}' for name, text in self.as_env().items())})"


_PARTS: Final[dict[str, type]] = {
    "relay": RelaySettings,
    "cleaner": CleanerSettings,
    "metrics": MetricsSettings,
    "logs": LogSettings,
}


class UnknownVariable(NamedTuple):
    """A name that begins as ours do and is none of them; ``nearest`` is the one that was probably meant."""

    name: str
    nearest: str | None

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"the variable {self.name} is not known and has no effect{hint}"


def unknown_variables(environ: Mapping[str, str]) -> list[UnknownVariable]:
    """The ``OUTBOX_*`` names nobody reads. Those that begin with ``OUTBOX_TEST_`` belong to this project's tests."""
    known = [variable.name for variable in VARIABLES]
    names = sorted(
        name
        for name in environ
        if name.startswith(PREFIX) and not name.startswith(OURS_IN_TESTS) and name not in known
    )
    return [UnknownVariable(name, next(iter(get_close_matches(name, known, n=1)), None)) for name in names]


def _part(place: str) -> str:
    return place.partition(".")[0] if "." in place else ""


def _together(part: str, given: Mapping[str, Any], error: ConfigError) -> Problem:
    """What is wrong with the variables of one part that were set, each readable by itself."""
    found = {
        variable.name: variable.kind.show(variable.kind.write(given[name]))
        for variable in VARIABLES
        if _part(variable.place) == part and (name := variable.place.partition(".")[2]) in given
    }
    named = ", ".join(f"{name}={text}" for name, text in found.items()) or part
    return Problem(tuple(found), f"{named}: {error}")
