"""Kinds of values in the environment: how each is read, what it accepts, and how it is written back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, cast

from outbox_core.durations import ACCEPTED, format_duration, parse_duration
from outbox_core.errors import InvalidTableName, InvalidUrl
from outbox_core.redaction import masked_url
from outbox_core.stores import flaw
from outbox_core.table import TableName
from outbox_core.url import DispatcherUrl

_LARGEST: Final = 2**31 - 1
_LONGEST: Final = 366 * 86400.0
_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0")


class Kind(Protocol):
    """How values of one kind are read and written."""

    @property
    def accepted(self) -> str:
        """What is accepted, in words that follow "expected"."""
        ...

    def parse(self, text: str) -> object:
        """The value; ValueError for what is not accepted, `Refused` where there is more to say."""
        ...

    def write(self, value: object) -> str:
        """Text that `parse` reads as the same value."""
        ...

    def show(self, text: str) -> str:
        """What a message may repeat of a text, whether it is accepted or not: no secret."""
        ...


class Refused(ValueError):
    """Raised by a kind that can say more than what it accepts."""


class _Open:
    """A kind whose values are no secrets."""

    def write(self, value: object) -> str:
        return str(value)

    def show(self, text: str) -> str:
        # What steers a terminal, or begins another line of a log, is shown by its code.
        plain = text if text.isprintable() else repr(text[:100])[1:-1]
        return plain if len(plain) <= 100 else f"{plain[:100]}…"


@dataclass(frozen=True, slots=True)
class Duration(_Open):
    """Seconds; 0 only where that has a meaning of its own, which ``zero`` says."""

    zero: str = ""
    instead: str = ""
    """What to do instead of giving 0, where people are likely to try that."""

    @property
    def accepted(self) -> str:
        return f"{ACCEPTED}{f', or 0 ({self.zero})' if self.zero else ', longer than 0'}, 8784h at most"

    def parse(self, text: str) -> float:
        seconds = parse_duration(text)
        if seconds == 0 and self.instead:
            raise Refused(self.instead)
        if seconds > _LONGEST or (seconds == 0 and not self.zero):
            raise ValueError(text)
        return seconds

    def write(self, value: object) -> str:
        if not isinstance(value, int | float):
            return "0"
        return format_duration(value)


@dataclass(frozen=True, slots=True)
class Whole(_Open):
    """A whole number."""

    least: int = 1
    most: int = _LARGEST

    @property
    def accepted(self) -> str:
        return f"a whole number from {self.least} to {self.most}"

    def parse(self, text: str) -> int:
        if not text.isascii() or not text.isdigit() or not self.least <= int(text) <= self.most:
            raise ValueError(text)
        return int(text)


@dataclass(frozen=True, slots=True)
class Truth(_Open):
    """True or false."""

    @property
    def accepted(self) -> str:
        return "true or false (also yes, no, on, off, 1, 0)"

    def parse(self, text: str) -> bool:
        if text.lower() not in _TRUE + _FALSE:
            raise ValueError(text)
        return text.lower() in _TRUE

    def write(self, value: object) -> str:
        return "true" if value else "false"


@dataclass(frozen=True, slots=True)
class Choice(_Open):
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def accepted(self) -> str:
        return " or ".join(self.words)

    def parse(self, text: str) -> str:
        if text.lower() not in self.words:
            raise ValueError(text)
        return text.lower()


@dataclass(frozen=True, slots=True)
class Text(_Open):
    """Any text that begins as it must."""

    accepted: str
    begins: str = ""

    def parse(self, text: str) -> str:
        if not text.startswith(self.begins):
            raise ValueError(text)
        return text


@dataclass(frozen=True, slots=True)
class Secret:
    """Text that is never shown."""

    accepted: str
    most: int

    def parse(self, text: str) -> str:
        if len(text.encode()) > self.most:
            raise ValueError("too long")
        return text

    def write(self, value: object) -> str:
        return str(value)

    def show(self, text: str) -> str:
        return "***" if text else ""


@dataclass(frozen=True, slots=True)
class Tables(_Open):
    """Names of tables with commas between them."""

    @property
    def accepted(self) -> str:
        return "table names with commas between them, each as name or schema.name, none twice"

    def parse(self, text: str) -> tuple[TableName, ...]:
        try:
            tables = tuple(TableName.parse(part.strip()) for part in text.split(",") if part.strip())
        except InvalidTableName as error:
            raise Refused(error.rule) from None
        if len(set(tables)) != len(tables):
            raise ValueError(text)
        return tables

    def write(self, value: object) -> str:
        return ",".join(map(str, cast("Sequence[TableName]", value)))


def masked_database_url(url: str) -> str:
    """The scheme, user, hosts and database of a URL; the password and the values of options are left out.

    A text that cannot be read as a PostgreSQL URL comes back as ``***``: a mistyped one shows its password in
    unexpected places.
    """
    return masked_url(url, readable=flaw(url) is None)


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """A PostgreSQL URL, which holds a password."""

    @property
    def accepted(self) -> str:
        return "a URL that begins with postgresql://, as in postgresql://user:password@host/name"

    def parse(self, text: str) -> str:
        wrong = flaw(text)
        if wrong is not None:
            raise Refused(wrong)
        return text

    def write(self, value: object) -> str:
        return str(value)

    def show(self, text: str) -> str:
        return masked_database_url(text)


@dataclass(frozen=True, slots=True)
class Destination:
    """The URL of a dispatcher, which may hold a password."""

    @property
    def accepted(self) -> str:
        return "a dispatcher URL, as in kafka://host:9092, nats://host:4222 or amqp://user:password@host"

    def parse(self, text: str) -> str:
        try:
            DispatcherUrl.parse(text)
        except InvalidUrl as error:
            raise Refused(error.rule) from None
        return text

    def write(self, value: object) -> str:
        return str(value)

    def show(self, text: str) -> str:
        try:
            return str(DispatcherUrl.parse(text))
        except InvalidUrl:
            return "***"
