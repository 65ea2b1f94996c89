"""What happens, in the standard library's log: one line an event, with its fields as structured extras.

Never a payload, a header, a connection string or a secret.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from outbox_core import observer as events
from outbox_core.redaction import Masking, tenant_mask

if TYPE_CHECKING:
    from uuid import UUID

    from outbox_core.meta import Meta
    from outbox_core.observer import Event

_logger: Final = logging.getLogger("outbox_core.relay")


class LoggingObserver:
    """Ordinary deliveries at DEBUG, changes of leadership at INFO, what wants looking at from WARNING up.

    Lines about one message have the extras ``outbox_table``, ``outbox_topic``, ``outbox_event_id``,
    ``outbox_tenant_id``, ``outbox_sequence`` and ``outbox_attempts``; all others have the first. ``tenants`` is ``off``
    (they are shown), ``hash`` or ``drop``; see `tenant_mask` for the ``secret``. A relay has one of these, with
    tenants shown, unless it is given one.
    """

    def __init__(
        self, logger: logging.Logger = _logger, *, tenants: Masking = "off", secret: bytes = b""
    ) -> None:
        self._logger = logger
        self._tenant = tenant_mask(tenants, secret)

    def __call__(self, event: Event, /) -> None:
        match event:
            case events.Published() | events.Claimed() | events.Dispatched() | events.Enqueued():
                self._debug(event)
            case events.Measured():
                self._debug(event)
            case events.Failed():
                blame = "" if event.charged else ", the attempt is not charged"
                which = _which(event.message)
                text = f"dispatch failed ({which}), next try in {event.retry_in:.1f} s{blame}: {event.error}"
                self._log(logging.WARNING, event, text, **self._of(event.message))
            case events.Dead():
                text = f"message is dead ({_which(event.message)}): {event.error}"
                self._log(logging.ERROR, event, text, **self._of(event.message))
            case events.LeaseLost():
                text = f"lease lost before {event.write} ({_which(event.message)}); nothing was written"
                self._log(logging.WARNING, event, text, **self._of(event.message))
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
                text = f"database trouble, next try in {event.retry_in:.1f} s: {event.error}"
                self._log(logging.WARNING, event, text)
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
                self._log(
                    level, event, f"stopped, {event.abandoned} message(s) left without a recorded outcome"
                )
            case _:
                self._debug(event)

    def _debug(self, event: Event) -> None:
        """Lines that come with every message are not even made when nobody reads them."""
        if not self._logger.isEnabledFor(logging.DEBUG):
            return
        match event:
            case events.Published():
                self._log(logging.DEBUG, event, f"{len(event.messages)} message(s) published")
            case events.Claimed():
                text = f"{event.rows} message(s) claimed in {event.seconds * 1000:.1f} ms"
                self._log(logging.DEBUG, event, text)
            case events.Dispatched():
                for message, seconds in zip(event.messages, event.seconds, strict=True):
                    text = f"acknowledged ({_which(message)}) after {seconds * 1000:.1f} ms"
                    self._log(logging.DEBUG, event, text, **self._of(message))
            case events.Enqueued():
                fields = self._fields(event.topic, event.event_id, event.tenant_id, event.sequence)
                text = f"enqueued (topic {event.topic}, event {event.event_id}), {event.size} bytes"
                self._log(logging.DEBUG, event, text, **fields)
            case events.Measured():
                status = event.status
                age = status.oldest_pending_age
                text = f"{status.pending} pending, {status.locked} in flight, {status.dead} dead"
                waited = "" if age is None else f", the oldest has waited {age:.1f} s"
                self._log(logging.DEBUG, event, text + waited)
            case _:
                self._log(logging.DEBUG, event, type(event).__name__.lower())

    def _log(self, level: int, event: Event, text: str, **fields: Any) -> None:
        self._logger.log(
            level, "%s: %s", event.table, text, extra={"outbox_table": str(event.table), **fields}
        )

    def _of(self, meta: Meta) -> dict[str, Any]:
        fields = self._fields(meta.topic, meta.event_id, meta.tenant_id, meta.sequence)
        return fields | {"outbox_attempts": meta.attempts}

    def _fields(self, topic: str, event_id: UUID, tenant_id: UUID, sequence: int) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "outbox_topic": topic,
            "outbox_event_id": str(event_id),
            "outbox_sequence": sequence,
        }
        tenant = self._tenant(tenant_id)
        return fields if tenant is None else fields | {"outbox_tenant_id": tenant}


def _which(meta: Meta) -> str:
    return f"topic {meta.topic}, event {meta.event_id}, attempt {meta.attempts}"
