"""Credentials stay where they were given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import anyio

from outbox_core.dispatcher import Probing
from outbox_core.testing.contracts.contract import Contract, needs
from outbox_core.testing.contracts.driving import (
    close_dispatcher,
    expect,
    failure_of,
    logged,
    open_dispatcher,
)
from outbox_core.testing.contracts.samples import password, sample

if TYPE_CHECKING:
    from outbox_core.testing.contracts.broker import Broker

ACCEPT_SECONDS = 10.0


class SecrecyContract(Contract):
    """A password is in no log, no ``repr`` and no error, chained ones included, accepted or not."""

    @needs(lambda capabilities: capabilities.takes_credentials)
    async def test_a_password_is_never_shown(self, broker: Broker) -> None:
        secret = password()
        errors: list[BaseException] = []
        with logged() as lines:
            dispatcher = broker.make_with_password(secret)
            try:
                with suppress(TimeoutError), anyio.fail_after(ACCEPT_SECONDS):
                    await open_dispatcher(dispatcher)
                    errors += filter(None, [await failure_of(dispatcher, sample(broker.topic))])
                    errors += filter(None, [await failure_of(dispatcher, sample(broker.unknown_topic))])
                    if isinstance(dispatcher, Probing):
                        await dispatcher.probe()
            except AssertionError:
                raise
            except Exception as error:
                errors.append(error)
            finally:
                with anyio.CancelScope(shield=True):
                    await close_dispatcher(dispatcher, broker.close_within)
        for line in lines:
            expect(secret not in line, f"the log shows the password: {_masked(line, secret)}")
        for shown in (repr(dispatcher), str(dispatcher)):
            expect(secret not in shown, f"the dispatcher shows the password: {_masked(shown, secret)}")
        for raised in errors:
            for link in _chain(raised):
                shown = f"{link!r} {link} {link.args!r}"
                expect(secret not in shown, f"an error shows the password: {_masked(shown, secret)}")


def _chain(error: BaseException | None, depth: int = 0) -> Iterator[BaseException]:
    """The error, what caused it, and what is joined in it."""
    if error is None or depth > 20:
        return
    yield error
    yield from _chain(error.__cause__, depth + 1)
    yield from _chain(error.__context__, depth + 1)
    if isinstance(error, BaseExceptionGroup):
        for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _chain(part, depth + 1)


def _masked(text: str, secret: str) -> str:
    """Enough of the text to find the place, without the password, which may be a real one."""
    at = text.find(secret)
    return text[max(at - 80, 0) : at] + "***"
