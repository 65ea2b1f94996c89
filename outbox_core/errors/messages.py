"""Messages that cannot be stored or carried."""

from __future__ import annotations

from typing import ClassVar

from outbox_core.errors.quoting import invalid, shortened, shown
from outbox_core.errors.root import OutboxError


class MessageError(OutboxError, ValueError):
    """Raised when a message is not one the library can store and a broker can carry; nothing has been written.

    The text names the field and the rule. It never holds a payload, a body or a header's value.
    """

    code: ClassVar[str] = "MESSAGE.INVALID"


class InvalidTopic(MessageError):
    """Raised when a topic breaks the rules of `check_topic`, or the four-part shape of `Topic` where that is asked for.

    ``value`` is what was given and ``rule`` what it broke.
    """

    code: ClassVar[str] = "MESSAGE.TOPIC"

    def __init__(self, value: object, rule: str) -> None:
        super().__init__(f"{invalid('topic', value)}: {rule}")
        self.value = value
        self.rule = rule


class InvalidHeader(MessageError):
    """Raised when a user header could not travel unchanged, or would change what a broker does.

    ``name`` is the header's name, or None when the headers as a whole are at fault.
    """

    code: ClassVar[str] = "MESSAGE.HEADER"

    def __init__(self, name: object, rule: str) -> None:
        super().__init__(
            f"invalid headers: {rule}" if name is None else f"invalid header {shown(name)}: {rule}"
        )
        self.name = name
        self.rule = rule


class InvalidKey(MessageError):
    """Raised when an ordering key cannot be indexed or could not travel as a header unchanged."""

    code: ClassVar[str] = "MESSAGE.KEY"

    def __init__(self, value: object, rule: str) -> None:
        super().__init__(f"{invalid('key', value)}: {rule}")
        self.value = value
        self.rule = rule


class EncodingError(MessageError):
    """Raised when a payload cannot become JSON that PostgreSQL stores.

    ``path`` is where in the payload, such as ``payload.items[3].price``, and ``rule`` what is wrong there. The value
    itself is in neither.
    """

    code: ClassVar[str] = "MESSAGE.ENCODING"

    def __init__(self, path: str, rule: str) -> None:
        super().__init__(f"cannot encode {shortened(path)}: {rule}")
        self.path = path
        self.rule = rule


class MessageTooLarge(MessageError):
    """Raised when the encoded payload and headers are over the limit. ``size`` and ``limit`` are in bytes."""

    code: ClassVar[str] = "MESSAGE.TOO_LARGE"

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"the message has {size} bytes of encoded payload and headers and at most {limit} are allowed;"
            " store the large part elsewhere and send a reference to it, or raise the limit if the broker's is higher"
        )
        self.size = size
        self.limit = limit
