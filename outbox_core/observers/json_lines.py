"""An audit of what happens: one JSON object a line, with stable names, and summaries only.

Every line has ``event`` (the name of the event's class in snake case), ``at`` (RFC 3339, UTC, by this process's clock)
and ``table``. Lines about one message have ``topic``, ``event_id``, ``tenant_id``, ``sequence``, ``attempts`` and
``replays``. The rest are the fields of the event. Never a payload, a header, an ordering key, a trace or a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, cast
from uuid import UUID

from outbox_core import observer as events
from outbox_core.errors import ConfigError
from outbox_core.observer import Event
from outbox_core.redaction import Masking, tenant_mask
from outbox_core.status import Count, TableStatus
from outbox_core.table import TableName

if TYPE_CHECKING:
    from outbox_core.meta import Meta

_WORD_BEGINS: Final = re.compile(r"(?<!^)(?=[A-Z])")


class TextStream(Protocol):
    """What lines are written to: an open text file, ``sys.stdout`` or whatever has these two."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class JsonLinesObserver:
    """Writes events to a stream that the application opens and closes, and flushes it after each event.

    Writing happens on the event loop: give it a local file or a pipe that is read. ``only`` chooses the kinds of
    events; by default all are written but `Claimed`, `Measured` and `Published`, which say nothing about a message that
    `Dispatched` does not. ``tenants`` and ``secret`` are those of `tenant_mask`.
    """

    def __init__(
        self,
        stream: TextStream,
        *,
        only: Collection[type[Event]] | None = None,
        tenants: Masking = "off",
        secret: bytes = b"",
    ) -> None:
        kinds: Collection[object] = only or ()
        if not all(isinstance(kind, type) and issubclass(kind, Event) for kind in kinds):
            raise ConfigError("only must be a collection of event classes, such as [Dispatched, Dead]")
        self._stream = stream
        self._only = None if only is None else tuple(only)
        self._tenant = tenant_mask(tenants, secret)

    def __call__(self, event: Event, /) -> None:
        if self._only is None:
            if isinstance(event, events.Claimed | events.Measured | events.Published):
                return
        elif not isinstance(event, self._only):
            return
        start = {
            "event": name_of(type(event)),
            "at": datetime.now(UTC).isoformat(timespec="microseconds"),
            "table": str(event.table),
        }
        lines = [
            json.dumps(start | line, separators=(",", ":"), allow_nan=False) for line in self._lines(event)
        ]
        if lines:
            self._stream.write("\n".join(lines) + "\n")
            self._stream.flush()

    def _lines(self, event: Event) -> Iterator[dict[str, Any]]:
        match event:
            case events.Dispatched():
                for message, seconds in zip(event.messages, event.seconds, strict=True):
                    yield self._message(message) | {"seconds": round(seconds, 6)}
            case events.Published():
                yield from map(self._message, event.messages)
            case events.Failed() | events.Dead() | events.LeaseLost():
                yield self._message(event.message) | self._plain(event, leave_out=("message",))
            case events.Measured():
                yield self._plain(event.status, leave_out=("table",))
            case _:
                yield self._plain(event)

    def _message(self, message: Meta) -> dict[str, Any]:
        found: dict[str, Any] = {
            "topic": message.topic,
            "event_id": str(message.event_id),
            "tenant_id": self._tenant(message.tenant_id),
            "sequence": message.sequence,
            "attempts": message.attempts,
            "replays": message.replays,
        }
        return _without_nothing(found, "tenant_id")

    def _plain(self, source: Event | TableStatus, leave_out: Collection[str] = ()) -> dict[str, Any]:
        found = {
            field.name: getattr(source, field.name)
            for field in fields(source)
            if field.name != "table" and field.name not in leave_out
        }
        if isinstance(found.get("tenant_id"), UUID):
            found["tenant_id"] = self._tenant(found["tenant_id"])
        if "at" in found:  # of the event itself; the line has a time of its own
            found["measured_at" if isinstance(source, TableStatus) else "stopped_at"] = found.pop("at")
        return {name: _value(value) for name, value in _without_nothing(found, "tenant_id").items()}


def name_of(kind: type[Event]) -> str:
    """How an event is called in a line: ``LeaseLost`` is ``lease_lost``."""
    return _WORD_BEGINS.sub("_", kind.__name__).lower()


def _without_nothing(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in found.items() if key != name or value is not None}


def _value(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return round(value, 6)
        case bytes():
            return value.hex()
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="microseconds")
        case UUID() | TableName():
            return str(value)
        case Count():
            return {"value": value.value, "exact": value.exact}
        case tuple() | list():
            return [_value(each) for each in cast("Sequence[Any]", value)]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: _value(getattr(value, field.name)) for field in fields(value)}
        case _:
            return str(value)
