"""FastAPI: relays in the application's lifespan, health routes, and the outbox as a dependency::

    relays = AppRelays(Settings.from_env)
    app = FastAPI(lifespan=outbox_lifespan(relays), routes=health_routes(relays))

`docs/how-to/web.md` has the whole of it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_args, get_origin

from outbox_core.errors import ConfigError
from outbox_core.extras import needs_extra
from outbox_core.integrations.app_relays import AppRelays
from outbox_core.integrations.bound import Begin, BoundOutbox, begin_on, bound

with needs_extra("fastapi", feature="outbox_core.integrations.fastapi"):
    import fastapi
    from fastapi import Depends, params

    from outbox_core.integrations.starlette import health_routes, metrics_route, outbox_lifespan

if TYPE_CHECKING:
    from outbox_core.outbox import Outbox

__all__ = [
    "AppRelays",
    "BoundOutbox",
    "begin_on",
    "bound",
    "bound_outbox",
    "dependency_of",
    "health_routes",
    "metrics_route",
    "outbox_lifespan",
    "outbox_transaction",
]

T = TypeVar("T")

_HAS_SCOPES: Final = "scope" in inspect.signature(Depends).parameters
_VERSION: Final = tuple(int(part) for part in fastapi.__version__.split(".")[:2])
_EXITS_AFTER_THE_RESPONSE: Final = (0, 118)
"""From here on, and with no way to choose until 0.121, dependencies end only after the response was sent."""


def outbox_transaction(outbox: Outbox, begin: Begin[T]) -> Any:
    """A dependency that opens a transaction for the request, and gives the outbox bound to it::

        Orders = Annotated[BoundOutbox[AsyncSession], outbox_transaction(outbox, sessions.begin)]

        @app.post("/orders")
        async def place(order: Order, orders: Orders) -> None:
            orders.tx.add(...)
            await orders.enqueue(Message(...))

    It commits when the path function has returned and before the response is sent, so that nobody is told of what was
    not committed; whatever the function raises, an HTTPException too, rolls back. Raises `ConfigError` with FastAPI
    0.118 to 0.120, where that cannot be had. Tests put something else in its place by `dependency_of`.
    """

    async def transaction() -> AsyncGenerator[BoundOutbox[T]]:
        async with bound(outbox, begin) as opened:
            yield opened

    if not _HAS_SCOPES and _VERSION >= _EXITS_AFTER_THE_RESPONSE:
        raise ConfigError(
            f"FastAPI {fastapi.__version__} would commit only after the response was sent;"
            " install FastAPI 0.121 or later"
        )
    return _depends(transaction)


def bound_outbox(outbox: Outbox, session: Any) -> Any:
    """A dependency that binds the outbox to what your own dependency gives: a session or a connection::

        SessionDep = Annotated[AsyncSession, Depends(get_session, scope="function")]
        OrdersDep = Annotated[BoundOutbox[AsyncSession], bound_outbox(outbox, SessionDep)]

    ``session`` is the very annotation that path functions use, or the ``Depends`` in it. FastAPI makes a session for
    each different way to ask for one, and a message in another session than its data is what an outbox is to prevent.
    A dependency that commits at its end needs ``scope="function"``, or it commits after the response was sent.
    """
    kind = inspect.Parameter.KEYWORD_ONLY
    if _marker(session) is not session:
        return _depends(_Binding(outbox, inspect.Parameter("tx", kind, annotation=session)))
    return _depends(_Binding(outbox, inspect.Parameter("tx", kind, default=session, annotation=Any)))


def dependency_of(annotation: Any) -> Callable[..., Any]:
    """The function behind a dependency, which is what ``app.dependency_overrides`` goes by::

        Orders = Annotated[BoundOutbox[AsyncSession], outbox_transaction(outbox, sessions.begin)]

        other = outbox_transaction(outbox, test_sessions.begin)
        app.dependency_overrides[dependency_of(Orders)] = dependency_of(other)

    ``annotation`` is what path functions are annotated with, or the ``Depends`` in it. In tests without a database,
    `outbox_core.testing.fastapi.override_outbox` does it all.
    """
    dependency = _marker(annotation).dependency
    if dependency is None:
        raise ConfigError("this Depends() names no function, so there is nothing to override by")
    return dependency


def _marker(annotation: Any) -> params.Depends:
    """The ``Depends`` itself, or the one in an annotation."""
    parts = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    for part in parts:
        if isinstance(part, params.Depends):
            return part
    raise ConfigError(
        f"expected Depends(…) or Annotated[…, Depends(…)] as path functions have it, got {annotation!r}"
    )


class _Binding:
    """A dependency whose one parameter is known only at run time."""

    def __init__(self, outbox: Outbox, parameter: inspect.Parameter) -> None:
        self._outbox = outbox
        self.__signature__ = inspect.Signature([parameter])

    async def __call__(self, *, tx: Any) -> AsyncGenerator[BoundOutbox[Any]]:
        binding = BoundOutbox(self._outbox, tx)
        try:
            yield binding
        finally:
            binding.end()


def _depends(dependency: Callable[..., Any]) -> Any:
    """A dependency that ends when the path function has returned, as far as FastAPI has a say in it."""
    return Depends(dependency, scope="function") if _HAS_SCOPES else Depends(dependency)
