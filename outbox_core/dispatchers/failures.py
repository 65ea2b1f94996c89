"""What several failures with one message mean together."""

from __future__ import annotations

from collections.abc import Sequence

from outbox_core.errors import AllPermanent, BrokerUnavailable, DispatchTimeout, PermanentError


def joined(summary: str, failures: Sequence[Exception]) -> Exception:
    """One failure as it is, several as a group: a permanent one only if none of them could be mended by a retry."""
    if len(failures) == 1:
        return failures[0]
    if all(isinstance(failure, PermanentError) for failure in failures):
        return AllPermanent(summary, list(failures))
    return ExceptionGroup(summary, list(failures))


def joined_targets(summary: str, failures: Sequence[Exception]) -> Exception:
    """As `joined`, but a destination that is away, or may be, decides: the message is not to blame while it is."""
    if len(failures) == 1:
        return failures[0]
    group = joined(summary, failures)
    for kind in (BrokerUnavailable, DispatchTimeout):
        first = next((failure for failure in failures if isinstance(failure, kind)), None)
        if first is not None:
            error = kind(f"{summary}, among them: {first}")
            error.__cause__ = group
            return error
    return group
