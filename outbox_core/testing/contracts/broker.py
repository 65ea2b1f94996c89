"""What the dispatchers' suite must know about a broker, and be able to do to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outbox_core.dispatcher import Dispatcher
    from outbox_core.meta import DispatchedMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a broker, with its dispatcher, can do. The suite holds it to what is declared here, both ways where it can.

    A test of something that is declared impossible is not there at all, so nothing shows as skipped.
    """

    keeps_key_order: bool = True
    """Messages of one key are read back in the order in which they were acknowledged."""
    refuses_unknown_destinations: bool = True
    """A message for `Broker.unknown_topic` fails. When False, the suite checks that it is acknowledged instead."""
    max_bytes: int | None = None
    """A longer payload is refused for good (`PermanentError`). None when there is no limit within reach."""
    takes_credentials: bool = True
    """A dispatcher can be made with a password: `Broker.make_with_password`."""
    freezes: bool = True
    """The broker can be made to stop answering, with its connections open: `Broker.freeze` and `Broker.thaw`."""
    restarts: bool = True
    """The broker can be killed and comes back with what it had stored: `Broker.kill` and `Broker.restart`."""

    @property
    def refuses_messages(self) -> bool:
        """Whether there is a message the broker does not take, to stand among others that it does."""
        return self.refuses_unknown_destinations or self.max_bytes is not None


class Broker(ABC):
    """A broker under test. Each test gets a new one from the fixture ``broker``, with destinations of its own."""

    topic: str
    """A topic whose destination exists and is empty when the test begins."""
    unknown_topic: str = "contract.nowhere.v1"
    """A topic with no destination."""
    recovery: float = 30.0
    """Seconds after `thaw` or `restart` by which a dispatcher must work again, without being told."""
    close_within: float = 5.0
    """Seconds a dispatcher may take to close, whatever the state of the broker."""

    @abstractmethod
    def make(self) -> Dispatcher:
        """A new dispatcher to this broker, not opened yet. The suite opens it, if it is `Managed`, and closes it."""

    @abstractmethod
    async def stored(self) -> Sequence[DispatchedMessage]:
        """Everything the destination of ``topic`` has received in this test, in order of arrival, repeats included.

        Read by a client that shares nothing with the dispatchers; called several times in a test, perhaps. It must not
        wait for messages to come: what was acknowledged is there.
        """

    def make_with_password(self, password: str) -> Dispatcher:
        """A new dispatcher with this password; whether the broker accepts it does not matter."""
        raise NotImplementedError(self._lacks("make_with_password", "takes_credentials"))

    async def freeze(self) -> None:
        """From now on the broker does not answer, and its connections stay open (SIGSTOP)."""
        raise NotImplementedError(self._lacks("freeze", "freezes"))

    async def thaw(self) -> None:
        """Undo `freeze`; does nothing when it is not frozen."""
        raise NotImplementedError(self._lacks("thaw", "freezes"))

    async def kill(self) -> None:
        """End the broker without warning (SIGKILL)."""
        raise NotImplementedError(self._lacks("kill", "restarts"))

    async def restart(self) -> None:
        """Start the killed broker on the same address; returns once it serves again."""
        raise NotImplementedError(self._lacks("restart", "restarts"))

    def _lacks(self, method: str, capability: str) -> str:
        return (
            f"{type(self).__name__} does not implement {method}, which the tests of the capability {capability} need:"
            f" implement it, or declare Capabilities({capability}=False) in the suite's class"
        )
