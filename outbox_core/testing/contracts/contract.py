"""The base of a suite whose tests depend on what is declared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

if TYPE_CHECKING:
    from outbox_core.testing.contracts.broker import Capabilities

Method = TypeVar("Method", bound=Callable[..., Awaitable[None]])

_NEEDS: Final[dict[Callable[..., Any], Callable[[Capabilities], bool]]] = {}


def needs(condition: Callable[[Capabilities], bool]) -> Callable[[Method], Method]:
    """Mark a test that exists only for a broker whose declared capabilities fulfil the condition."""

    def mark(test: Method) -> Method:
        _NEEDS[test] = condition
        return test

    return mark


class Contract:
    """A subclass that states its ``capabilities`` has exactly the tests that they make possible."""

    capabilities: ClassVar[Capabilities]

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        capabilities = getattr(cls, "capabilities", None)
        if capabilities is None:
            return
        for base in reversed(cls.__mro__):
            for name, test in list(vars(base).items()):
                condition = _NEEDS.get(test) if callable(test) else None
                if condition is not None:
                    # A test runner does not take None for a test: it is neither run nor reported as skipped.
                    setattr(cls, name, test if condition(capabilities) else None)
