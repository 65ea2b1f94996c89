"""Dead letters as data: which are meant, what a plan would change, and what the audit keeps of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias
from uuid import UUID

from outbox_core.errors import ConfigError
from outbox_core.errors.quoting import shown
from outbox_core.table import TableName
from outbox_core.topic import TopicPattern

if TYPE_CHECKING:
    from outbox_core.record import StoredMessage

MAX_EVENT_IDS: Final = 1000
MIN_RATE: Final = 0.001
MAX_RATE: Final = 1_000_000
"""Messages a second. Slower, and the last of a large replay would be due beyond any date there is."""

LetterPlace: TypeAlias = tuple[datetime, int]
"""A place in the order of dead letters: ``(dead_at, sequence)``."""


class Action(StrEnum):
    """What an operator can do to messages."""

    REPLAY = "replay"
    DISCARD = "discard"
    RELEASE = "release"
    POSTPONE = "postpone"
    CLEAN = "clean"


class GroupBy(StrEnum):
    """What dead letters are counted by; an hour is that of ``dead_at``, in UTC."""

    CODE = "code"
    TOPIC = "topic"
    TENANT = "tenant"
    HOUR = "hour"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which dead letters are meant: those that meet every condition given.

    ``topic`` is a topic or a pattern (``orders.**``), ``code`` the error code that ``last_error`` begins with.
    ``since`` (inclusive) and ``until`` (exclusive) bound ``dead_at``, or ``published_at`` where published messages are
    replayed. At most 1000 ``event_ids``. What changes rows wants at least one condition, or ``everything=True``.
    """

    topic: str | None = None
    tenant_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None
    code: str | None = None
    event_ids: Sequence[UUID] | None = None
    everything: bool = False

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            value: object = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise ConfigError(f"{name} must be a {kind.__name__}, got {type(value).__name__}")
        if self.topic is not None:
            TopicPattern.parse(self.topic)
        for name in ("since", "until"):
            moment: datetime | None = getattr(self, name)
            if moment is not None:
                _check_moment(name, moment)
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ConfigError(
                f"since must be before until, got {self.since.isoformat()} and {self.until.isoformat()}"
            )
        if self.event_ids is not None:
            ids = tuple(self.event_ids)
            if not 0 < len(ids) <= MAX_EVENT_IDS:
                raise ConfigError(f"event_ids must be 1 to {MAX_EVENT_IDS} ids, got {len(ids)}")
            if not all(isinstance(each, UUID) for each in ids):
                raise ConfigError("event_ids must be UUIDs; convert them with UUID()")
            object.__setattr__(self, "event_ids", ids)
        if self.code is not None and (not self.code or " " in self.code or not self.code.isprintable()):
            raise ConfigError(f"code must be an error code such as TX.TIMEOUT, got {shown(self.code)}")
        if self.everything and any(value is not None for value in self._conditions().values()):
            raise ConfigError("everything=True contradicts the other conditions; give one or the other")

    @property
    def bounded(self) -> bool:
        """Whether any condition is given that leaves something out; the topic ``**`` does not."""
        given = {name for name, value in self._conditions().items() if value is not None}
        return bool(given - ({"topic"} if self.topic == "**" else set()))

    @property
    def topic_expression(self) -> str | None:
        """The topic pattern as a regular expression, for a database that knows no topic patterns."""
        if self.topic is None:
            return None
        wildcards = {"*": "[^.]+", "**": r"[^.]+(\.[^.]+)*"}
        parts = [wildcards.get(segment, segment) for segment in TopicPattern.parse(self.topic).segments]
        return "^" + r"\.".join(parts) + "$"

    def as_json(self) -> dict[str, Any]:
        """The conditions given, as they are put on record."""
        found: dict[str, Any] = {}
        for name, value in self._conditions().items():
            if isinstance(value, datetime):
                found[name] = value.isoformat()
            elif isinstance(value, tuple):
                found[name] = [str(each) for each in self.event_ids or ()]
            elif value is not None:
                found[name] = str(value)
        return found | ({"everything": True} if self.everything else {})

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """What `as_json` put on record."""

        def moment(name: str) -> datetime | None:
            return datetime.fromisoformat(record[name]) if name in record else None

        return cls(
            topic=record.get("topic"),
            tenant_id=UUID(record["tenant_id"]) if "tenant_id" in record else None,
            since=moment("since"),
            until=moment("until"),
            code=record.get("code"),
            event_ids=[UUID(each) for each in record["event_ids"]] if "event_ids" in record else None,
            everything=record.get("everything", False),
        )

    def _conditions(self) -> dict[str, object]:
        names = ("topic", "tenant_id", "since", "until", "code", "event_ids")
        return {name: getattr(self, name) for name in names}


_KINDS: Final[Mapping[str, type]] = {
    "topic": str,
    "tenant_id": UUID,
    "since": datetime,
    "until": datetime,
    "code": str,
    "event_ids": Sequence,
    "everything": bool,
}


def _check_moment(name: str, moment: datetime) -> None:
    if moment.utcoffset() is None:
        raise ConfigError(f"{name} must have a time zone, got the naive {moment.isoformat()}")
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise ConfigError(f"{name} is outside the years 1 to 9999 in UTC: {moment.isoformat()}") from None


@dataclass(frozen=True, slots=True)
class Page:
    """Some dead letters, oldest death first. ``next`` is where the next page begins, None after the last."""

    messages: Sequence[StoredMessage]
    next: LetterPlace | None


@dataclass(frozen=True, slots=True)
class Group:
    """Dead letters that have a value in common, and when the first and the last of them died."""

    value: str
    count: int
    oldest: datetime
    newest: datetime


@dataclass(frozen=True, slots=True)
class ExceededWindow:
    """A consumer that may no longer know ``count`` of the messages, because they are older than its dedupe window."""

    consumer: str
    window: timedelta
    count: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be changed, as of a moment of the database's clock. It changes nothing by itself.

    ``id`` is also that of the audit record: a plan is carried out once, however often it is given. Messages that die
    after ``as_of`` are not part of it. ``oldest`` and ``newest`` are when the messages died, or were published.
    """

    id: UUID
    table: TableName
    filter: Filter
    published: bool
    as_of: datetime
    total: int
    topics: Mapping[str, int]
    oldest: datetime | None
    newest: datetime | None
    exceeded: Sequence[ExceededWindow] = ()

    def as_json(self) -> dict[str, Any]:
        """The plan as JSON has it, to be kept until somebody has agreed to it."""
        return {
            "id": str(self.id),
            "table": str(self.table),
            "filter": self.filter.as_json(),
            "published": self.published,
            "as_of": self.as_of.isoformat(),
            "total": self.total,
            "topics": dict(self.topics),
            "oldest": None if self.oldest is None else self.oldest.isoformat(),
            "newest": None if self.newest is None else self.newest.isoformat(),
            "exceeded": [
                {"consumer": each.consumer, "window": each.window.total_seconds(), "count": each.count}
                for each in self.exceeded
            ],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """What `as_json` gave; raises `ConfigError` for anything else, and for a filter that says nothing."""
        try:
            oldest, newest = record["oldest"], record["newest"]
            wanted = Filter.from_json(record["filter"])
            if not wanted.bounded and not wanted.everything:
                raise ValueError("every message would be meant, and nobody said so")
            return cls(
                id=UUID(record["id"]),
                table=TableName.parse(record["table"]),
                filter=wanted,
                published=_read_flag(record["published"]),
                as_of=_read_moment(record["as_of"]),
                total=_read_count(record["total"]),
                topics={_read_line(topic): _read_count(count) for topic, count in record["topics"].items()},
                oldest=None if oldest is None else _read_moment(oldest),
                newest=None if newest is None else _read_moment(newest),
                exceeded=tuple(
                    ExceededWindow(
                        _read_line(each["consumer"]),
                        timedelta(seconds=each["window"]),
                        _read_count(each["count"]),
                    )
                    for each in record["exceeded"]
                ),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ConfigError(
                f"this is not a plan as Plan.as_json gives it: {type(error).__name__}"
            ) from None

    def __str__(self) -> str:
        kind = "published message(s)" if self.published else "dead letter(s)"
        lines = [f"{self.total} {kind} of {self.table} as of {self.as_of:%Y-%m-%d %H:%M:%S %Z}"]
        lines += [f"  {count:>9} {topic}" for topic, count in self.topics.items()]
        if self.oldest is not None and self.newest is not None:
            lines.append(f"  from {self.oldest:%Y-%m-%d %H:%M:%S} to {self.newest:%Y-%m-%d %H:%M:%S %Z}")
        lines += [
            f"  warning: {each.count} are older than the {each.window} for which {each.consumer} remembers messages"
            for each in self.exceeded
        ]
        return "\n".join(lines)


def _read_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("not true or false")
    return value


def _read_count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ValueError("not a number of messages")
    return value


def _read_line(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError("not one line of text")
    return value


def _read_moment(value: object) -> datetime:
    moment = datetime.fromisoformat(_read_line(value))
    _check_moment("a moment of the plan", moment)
    return moment


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """Who did what to messages, when and why, and how far it got.

    ``changed`` of ``planned`` messages have been changed so far; ``finished_at`` is None until all have been looked at.
    """

    id: UUID
    action: Action
    actor: str
    reason: str
    filter: Mapping[str, Any]
    as_of: datetime
    planned: int
    changed: int
    rate: float | None
    batches: int
    cursor: LetterPlace | None
    paced_until: datetime | None
    started_at: datetime
    finished_at: datetime | None

    @property
    def skipped(self) -> int:
        """How many planned messages had moved on: replayed, discarded or cleaned by somebody else. 0 until the end."""
        return max(self.planned - self.changed, 0) if self.finished_at is not None else 0

    @property
    def published(self) -> bool:
        """Whether published messages are meant, not dead ones."""
        return bool(self.filter.get("published"))

    @property
    def selection(self) -> Filter:
        """The filter of a replay or a discard."""
        return Filter.from_json(self.filter)
