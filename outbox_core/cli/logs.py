"""The log of ``outbox relay``: lines for people or for machines, on standard error."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from outbox_core.cli.output import visible
from outbox_core.errors import OutboxError

if TYPE_CHECKING:
    from outbox_core.config import LogSettings

_PREFIX: Final = "outbox_"
_OURS: Final = ("outbox_core", "outbox_amqp", "outbox_kafka", "outbox_nats")


def configure(settings: LogSettings) -> None:
    """Send every log of this process to standard error, in one form.

    Client libraries log from INFO up whatever the level is: at DEBUG some of them write payloads and passwords.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.format == "json" else Lines())
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    logging.basicConfig(level=max(level, logging.INFO), handlers=[handler], force=True)
    for package in _OURS:
        logging.getLogger(package).setLevel(level)


class Lines(logging.Formatter):
    """``2026-01-31T08:00:00.123Z WARNING outbox_core.relay: …``, a line a record save for where an error comes from.

    Of an error only the library's own text is shown: a driver's may quote a payload or a connection string.
    """

    def format(self, record: logging.LogRecord) -> str:
        text = visible(record.getMessage())
        line = f"{_moment(record)} {record.levelname} {record.name}: {text}"
        return f"{line}\n{_trace(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """A JSON object a line: ``time``, ``level``, ``logger``, ``message``, the event's own fields, ``error``."""

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, Any] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        found |= {
            name.removeprefix(_PREFIX): value
            for name, value in vars(record).items()
            if name.startswith(_PREFIX)
        }
        if record.exc_info:
            found["error"] = _trace(record.exc_info)
        return json.dumps(found, ensure_ascii=False, default=str)


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _trace(
    found: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
) -> str:
    error, parts = found[1], list[str]()
    while error is not None:
        text = f": {error}" if isinstance(error, OutboxError) else ""
        parts.append(f"{type(error).__name__}{text}\n" + "".join(traceback.format_tb(error.__traceback__)))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "because of ".join(parts).rstrip()
