"""What a dispatcher makes of a window of messages, held to its contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from itertools import islice
from typing import TYPE_CHECKING, Any

from outbox_core.errors import InvalidDispatcherReturn

if TYPE_CHECKING:
    from outbox_core.dispatcher import Outcome


def outcomes_of(dispatcher: str, returned: object, messages: int) -> list[Outcome]:
    """The outcomes that ``dispatch_many`` returned for so many messages, in their order.

    One that is neither None nor an exception is `InvalidDispatcherReturn` itself. That is raised when there is not one
    for each message; what is no sequence but can be gone through in order will do.
    """
    kind = type(returned).__name__
    found = _in_order(returned)
    if found is None:
        what = "None" if returned is None else f"a {kind}"
        cure = "return a list with one outcome for each message, in order: None or the exception"
        raise InvalidDispatcherReturn(dispatcher, returned, from_many=f"{what}; {cure}")
    # One more than there should be says that there are too many; it may have no end.
    outcomes = list(islice(found, messages + 1))
    if len(outcomes) != messages:
        few = len(outcomes) < messages
        count = _counted(len(outcomes), "outcome") if few else f"more than {_counted(messages, 'outcome')}"
        what = f"a {kind} of {count} for {_counted(messages, 'message')}"
        cure = "return one for each, in order: None or the exception"
        raise InvalidDispatcherReturn(dispatcher, returned, from_many=f"{what}; {cure}")
    return [_outcome(dispatcher, outcome) for outcome in outcomes]


def _in_order(returned: Any) -> Iterator[object] | None:
    if isinstance(returned, str | bytes | Mapping | Set):
        return None
    try:
        found: Iterator[object] = iter(returned)
    except TypeError:
        return None
    return found


def _outcome(dispatcher: str, outcome: object) -> Outcome:
    if outcome is None or isinstance(outcome, BaseException):
        return outcome
    what = f"a {type(outcome).__name__} as an outcome"
    cure = "each is None, once the destination has acknowledged its message, or the exception itself"
    return InvalidDispatcherReturn(dispatcher, outcome, from_many=f"{what}; {cure}")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
