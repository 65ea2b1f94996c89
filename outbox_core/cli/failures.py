"""How commands fail: one line that says what was wrong, one that says what to do, and an exit code by family."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from enum import IntEnum
from typing import TYPE_CHECKING, Final, cast

import click

from outbox_core.cli.streams import lost_output, silence, tell
from outbox_core.config import unknown_variables
from outbox_core.errors import (
    BrokerUnavailable,
    ConfigError,
    EmbeddedServerError,
    MessageError,
    MissingExtra,
    OutboxError,
    PermissionDenied,
    ProviderError,
    RelayFailed,
    SchemaError,
    StorageError,
    TransactionError,
)

if TYPE_CHECKING:
    from outbox_core.cli.call import Call


class ExitCode(IntEnum):
    """What the command's exit code means; stable, and listed in ``docs/reference/cli.md``."""

    DONE = 0
    UNEXPECTED = 1
    """Something nobody foresaw; run again with ``--debug``."""
    USAGE = 2
    """An option, an argument or a value that makes no sense."""
    CONFIG = 3
    """A setting, a name or an installation is wrong."""
    DATABASE = 4
    """The database is away, too slow, or failed; or there is none of that name, or no such user."""
    PERMISSION = 5
    """The database role may not do this."""
    SCHEMA = 6
    """The table is missing, too old, too new or not as it must be."""
    BROKER = 7
    """The destination is away or refused, or took none of the messages that were due."""
    MESSAGE = 8
    """The message cannot be written."""
    DECLINED = 9
    """Somebody was asked and said no; nothing was changed."""
    WARNINGS = 10
    """Everything works, and something should be looked at."""
    FINDINGS = 11
    """Something was found that must be mended."""
    NOTHING = 12
    """What was named is not there: no message fits the filter, or has the id or the key, or a plan has gone stale."""
    LED_ELSEWHERE = 13
    """Another relay leads the table, and delivers what is due there."""
    OUTPUT = 14
    """Standard output could not be written, as on a full disk. What was asked for may have been done."""
    INTERRUPTED = 130
    """Ctrl-C, or SIGTERM before the command was done."""
    PIPE = 141
    """Whoever read the output left before its end, as `head` does; nothing is said."""


class Declined(click.ClickException):
    """Raised when the person who was asked said no."""

    exit_code = ExitCode.DECLINED

    def __init__(self) -> None:
        super().__init__("declined; nothing was changed")


class NothingThere(click.ClickException):
    """Raised when nothing fits what was asked for, so that a mistyped filter does not look like success."""

    exit_code = ExitCode.NOTHING


_FAMILIES: Final[tuple[tuple[type[OutboxError], ExitCode], ...]] = (
    (PermissionDenied, ExitCode.PERMISSION),
    (SchemaError, ExitCode.SCHEMA),
    (StorageError, ExitCode.DATABASE),
    (ConfigError, ExitCode.CONFIG),
    (MessageError, ExitCode.MESSAGE),
    (TransactionError, ExitCode.MESSAGE),
    (ProviderError, ExitCode.BROKER),
)
"""The first that fits decides."""

_INSTEAD: Final = (
    "Where no wheel fits, use servers of your own: `outbox dev --database URL --to URL`, or set OUTBOX_DATABASE_URL and"
    " run `outbox relay --to URL`."
)
_NO_ARGUMENTS: Final[type[click.UsageError] | tuple[()]] = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""Raised by click 8.2 and later, with the help as its text; before, click prints the help itself."""
_DEBUG_HINT: Final = "Run it again with --debug to see where."


def exit_code(error: BaseException) -> ExitCode:
    """The exit code of an error."""
    error = _told(error)
    for family, code in _FAMILIES:
        if isinstance(error, family):
            return code
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if isinstance(error, click.ClickException):
        return ExitCode(error.exit_code)
    unwritten = lost_output(error)
    if unwritten is not None:
        return ExitCode.PIPE if unwritten.errno == errno.EPIPE else ExitCode.OUTPUT
    return ExitCode.UNEXPECTED


def report(error: BaseException, call: Call) -> ExitCode:
    """Tell the person what went wrong, on standard error, and give the exit code."""
    unwritten = lost_output(_told(error))
    if unwritten is not None:
        return _report_lost(unwritten)
    if call.debug:
        traceback.print_exception(error)
    if isinstance(error, _NO_ARGUMENTS):
        tell(f"{error.format_message().rstrip()}\n")
        return exit_code(error)
    what, hint = _described(error, call)
    tell(f"error: {what}\n" + (f"hint: {hint}\n" if hint else ""))
    return exit_code(error)


def _report_lost(error: OSError) -> ExitCode:
    """Nothing of what was written is of use, and nothing more is written; a reader that left wants to hear nothing."""
    silence(sys.stdout)
    code = exit_code(error)
    if code is ExitCode.OUTPUT:
        tell(f"error: standard output could not be written: {os.strerror(error.errno or 0)}\n")
    return code


def _told(error: BaseException) -> BaseException:
    """The error that says something: what ended the relay, or the first of those that tasks raised together."""
    if isinstance(error, RelayFailed) and error.__cause__ is not None:
        return _told(error.__cause__)
    if isinstance(error, BaseExceptionGroup) and not isinstance(error, OutboxError):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return _told(group.exceptions[0])
    return error


def _described(error: BaseException, call: Call) -> tuple[str, str]:
    error = _told(error)
    if isinstance(error, OutboxError):
        return f"{error} [{error.code}]", _hint(error, call)
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return "interrupted", ""
    if isinstance(error, click.UsageError):
        path = "outbox" if error.ctx is None else error.ctx.command_path
        known = f"`{path} --help` lists what there is."
        return " ".join(error.format_message().split()), " ".join([*_misspelt(error), known])
    if isinstance(error, click.ClickException):
        return error.format_message(), ""
    # The text of an unforeseen error may quote a payload or a password; --debug shows it to whoever asks.
    return f"unexpected {type(error).__name__}", _DEBUG_HINT


def _misspelt(error: click.UsageError) -> list[str]:
    """Variables that nobody knows, where one was missed."""
    missed = isinstance(error, click.MissingParameter)
    if not missed:
        return []
    return [_sentence(str(each)) for each in unknown_variables(os.environ)]


def _sentence(text: str) -> str:
    """Text with a capital at its beginning and a stop at its end."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '?')) else '.'}"


def _hint(error: OutboxError, call: Call) -> str:
    if isinstance(error, EmbeddedServerError) or (
        isinstance(error, MissingExtra) and error.extra == "embedded"
    ):
        return _INSTEAD
    if isinstance(error, SchemaError | PermissionDenied):
        # Their own text has the command that mends it.
        return ""
    if isinstance(error, StorageError):
        # A server that answered with an error is up; what to do about it is in the error's own text.
        answered = getattr(error.__cause__, "sqlstate", None) is not None
        parts = [
            "" if answered else "Is the server up, and can it be reached from here?",
            f"The database is {call.database}." if call.database else "",
        ]
        return " ".join(part for part in parts if part)
    if isinstance(error, BrokerUnavailable):
        return "Is the broker up, can it be reached from here, and is the login right?"
    return ""
