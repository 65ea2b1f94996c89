"""What happens, in the standard library's log: one line an event, with its fields as structured extras.

Never a payload, a header, a connection string or a secret.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from outbox_core import observer as events

if TYPE_CHECKING:
    from outbox_core.meta import Meta
    from outbox_core.observer import Event

_logger: Final = logging.getLogger("outbox_core.relay")


class LoggingObserver:
    """Ordinary deliveries at DEBUG, changes of leadership at INFO, what wants looking at from WARNING up."""

    def __init__(self, logger: logging.Logger = _logger) -> None:
        self._logger = logger

    def __call__(self, event: Event, /) -> None:
        match event:
            case events.Published() | events.Claimed() | events.Dispatched() | events.Enqueued():
                self._debug(event)
            case events.Failed():
                blame = "" if event.charged else ", the attempt is not charged"
                which = _which(event.message)
                text = f"dispatch failed ({which}), next try in {event.retry_in:.1f} s{blame}: {event.error}"
                self._log(logging.WARNING, event, text, **_fields(event.message))
            case events.Dead():
                text = f"message is dead ({_which(event.message)}): {event.error}"
                self._log(logging.ERROR, event, text, **_fields(event.message))
            case events.LeaseLost():
                text = f"lease lost before {event.write} ({_which(event.message)}); nothing was written"
                self._log(logging.WARNING, event, text, **_fields(event.message))
            case events.Released():
                self._log(logging.DEBUG, event, f"{event.rows} message(s) given back: {event.reason}")
            case events.LeaderGained():
                self._log(logging.INFO, event, f"leading, term {event.term}")
            case events.LeaderLost():
                self._log(logging.INFO, event, f"no longer leading, term {event.term}: {event.reason}")
            case events.BreakerOpened():
                self._log(
                    logging.ERROR, event,
                    f"{event.destination} is away, next try in {event.retry_in:.1f} s: {event.error}",
                )  # fmt: skip
            case events.BreakerClosed():
                self._log(logging.INFO, event, f"{event.destination} is back after {event.seconds:.1f} s")
            case events.Reconnecting():
                self._log(
                    logging.WARNING,
                    event,
                    f"database trouble, next try in {event.retry_in:.1f} s: {event.error}",
                )
            case events.PoolerDetected():
                self._log(
                    logging.WARNING, event,
                    "a transaction pooler is in the way: leadership rests on the heartbeat row, wake-ups on polling",
                )  # fmt: skip
            case events.SessionEnded():
                self._log(logging.WARNING, event, f"ended the stuck session {event.pid} of a frozen relay")
            case events.Cleaned():
                self._log(
                    logging.INFO, event,
                    f"cleaned: {event.published} published and {event.dead} dead message(s) deleted"
                    f" in {event.seconds:.1f} s",
                )  # fmt: skip
            case events.Replayed():
                self._log(logging.INFO, event, f"{event.rows} message(s) replayed by {event.actor}")
            case events.Discarded():
                self._log(logging.WARNING, event, f"{event.rows} dead message(s) discarded by {event.actor}")
            case events.Stopped():
                level = logging.WARNING if event.abandoned else logging.INFO
                self._log(level, event, f"stopped, {event.abandoned} message(s) left in dispatch")
            case _:
                self._debug(event)

    def _debug(self, event: Event) -> None:
        if self._logger.isEnabledFor(logging.DEBUG):
            match event:
                case events.Published():
                    self._log(logging.DEBUG, event, f"{len(event.messages)} message(s) published")
                case events.Claimed():
                    self._log(
                        logging.DEBUG,
                        event,
                        f"{event.rows} message(s) claimed in {event.seconds * 1000:.1f} ms",
                    )
                case events.Dispatched():
                    self._log(logging.DEBUG, event, f"{len(event.messages)} message(s) acknowledged")
                case _:
                    self._log(logging.DEBUG, event, type(event).__name__.lower())

    def _log(self, level: int, event: Event, text: str, **fields: Any) -> None:
        self._logger.log(
            level, "%s: %s", event.table, text, extra={"outbox_table": str(event.table), **fields}
        )


def _which(meta: Meta) -> str:
    return f"topic {meta.topic}, event {meta.event_id}, attempt {meta.attempts}"


def _fields(meta: Meta) -> dict[str, Any]:
    return {
        "outbox_topic": meta.topic,
        "outbox_event_id": str(meta.event_id),
        "outbox_tenant_id": str(meta.tenant_id),
        "outbox_sequence": meta.sequence,
        "outbox_attempts": meta.attempts,
    }
