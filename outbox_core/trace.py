"""W3C trace context: what is passed on, what is dropped, and what OpenTelemetry says is current."""

from __future__ import annotations

import logging
import re
import sys
import threading
from typing import Final

MAX_TRACESTATE_CHARACTERS: Final = 512
MAX_TRACESTATE_MEMBERS: Final = 32
_MAX_TRACEPARENT_CHARACTERS: Final = 256

_TRACEPARENT: Final = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?P<more>-[!-~]*)?"
)
_TRACESTATE_MEMBER: Final = re.compile(
    r"(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
    r"=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
)

_logger: Final = logging.getLogger(__name__)


class _Count:
    __slots__ = ("_lock", "value")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.value = 0

    def add(self) -> None:
        with self._lock:
            self.value += 1


_dropped: Final = _Count()


def dropped_traces() -> int:
    """How many malformed trace values this process has dropped since it started."""
    return _dropped.value


def valid_traceparent(value: object) -> bool:
    """Whether a value is a ``traceparent`` as W3C Trace Context writes it.

    Version 00 must match to the letter; of a later version, the four known fields must be right and more may follow.
    """
    if not isinstance(value, str) or len(value) > _MAX_TRACEPARENT_CHARACTERS:
        return False
    match = _TRACEPARENT.fullmatch(value)
    return match is not None and (match["more"] is None or match["version"] != "00")


def valid_tracestate(value: object) -> bool:
    """Whether a value is a ``tracestate`` of at most 512 characters and 32 members, each ``key=value``, none twice."""
    if not isinstance(value, str) or len(value) > MAX_TRACESTATE_CHARACTERS or value != value.strip():
        return False
    members = [member.strip(" \t") for member in value.split(",")]
    named = [member for member in members if member]
    return (
        0 < len(named) <= MAX_TRACESTATE_MEMBERS
        and "\t" not in value
        and all(_TRACESTATE_MEMBER.fullmatch(member) for member in named)
        and len({member.partition("=")[0] for member in named}) == len(named)
    )


def accept_trace(traceparent: object, tracestate: object) -> tuple[str | None, str | None]:
    """The two values with what is malformed dropped and counted, never refused: a trace is not worth a message.

    A ``tracestate`` means nothing without its ``traceparent`` and goes with it.
    """
    if traceparent is None and tracestate is None:
        return None, None
    if not isinstance(traceparent, str) or not valid_traceparent(traceparent):
        _drop("tracestate without a traceparent" if traceparent is None else "malformed traceparent")
        return None, None
    if tracestate is None or tracestate == "":
        return traceparent, None
    if not isinstance(tracestate, str) or not valid_tracestate(tracestate):
        _drop("malformed or too long tracestate")
        return traceparent, None
    return traceparent, tracestate


def current_trace() -> tuple[str | None, str | None]:
    """``traceparent`` and ``tracestate`` of the current OpenTelemetry span, or a pair of None when there is none.

    OpenTelemetry is never imported for this: a process with a current span has imported it already.
    """
    if "opentelemetry.trace" not in sys.modules:
        return None, None
    from opentelemetry.trace import get_current_span

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return None, None
    traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return accept_trace(traceparent, context.trace_state.to_header() or None)


def _drop(what: str) -> None:
    _dropped.add()
    _logger.debug("dropped a %s", what)
