"""What goes wrong between an event bus and its handlers."""

from __future__ import annotations

from typing import ClassVar

from outbox_core.errors.providers import PermanentError
from outbox_core.errors.quoting import shortened
from outbox_core.errors.root import OutboxError


class EventBusError(OutboxError):
    """Raised when an event bus cannot give a message to its handlers, or they do not behave as handlers."""

    code: ClassVar[str] = "EVENTBUS.ERROR"


class HandlerCancelled(EventBusError):
    """Raised when a handler ended by a cancellation that nobody asked of it: what it did is not known."""

    code: ClassVar[str] = "EVENTBUS.HANDLER_CANCELLED"

    def __init__(self, handler: str) -> None:
        super().__init__(
            f"the handler {handler} was cancelled from inside, perhaps by awaiting a task that was cancelled"
        )
        self.handler = handler


class HandlerTimeout(EventBusError):
    """Raised when a handler took longer than its timeout. ``seconds`` is that timeout."""

    code: ClassVar[str] = "EVENTBUS.HANDLER_TIMEOUT"

    def __init__(self, handler: str, seconds: float) -> None:
        super().__init__(
            f"the handler {handler} did not end within {seconds:g} s; whether it did its work is not known"
        )
        self.handler = handler
        self.seconds = seconds


class NoSubscribers(EventBusError):
    """Raised when nobody listens to a topic, because silence would lose the message; it is retried."""

    code: ClassVar[str] = "EVENTBUS.NO_SUBSCRIBERS"

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"no handler is subscribed to the topic {topic!r}; subscribe one before the relay starts"
        )
        self.topic = topic


class InvalidHandlerReturn(EventBusError, PermanentError):
    """Raised when a handler returns something other than None; a retry would repeat whatever it did."""

    code: ClassVar[str] = "EVENTBUS.INVALID_HANDLER_RETURN"

    def __init__(self, handler: str, returned: object) -> None:
        super().__init__(
            f"the handler {handler} returned a {type(returned).__name__}; it must return None when it is done, and"
            " raise otherwise"
        )
        self.handler = handler


class PayloadMismatch(EventBusError, PermanentError):
    """Raised when a payload does not fit the type that a handler takes.

    ``path`` is where, such as ``payload.items[3]``, and ``rule`` what is wrong there. The value itself is in neither.
    """

    code: ClassVar[str] = "EVENTBUS.PAYLOAD_MISMATCH"

    def __init__(self, path: str, rule: str) -> None:
        super().__init__(f"{shortened(path)} {rule}")
        self.path = path
        self.rule = rule
