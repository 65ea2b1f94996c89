"""Servers with a configuration of their own, and certificates for those that speak TLS."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeVar

import pytest

from tests.conftest import skip_or_fail, skipped_or_failed_when_missing
from tests.integration.adapters.certificates import Certificates
from tests.services.server import Server
from tests.services.session import Services
from tests.services.sources import Missing

S = TypeVar("S", bound=Server)


@pytest.fixture
def configured(services: Services) -> Iterator[Callable[[type[S], str], S]]:
    """Start a private server with these lines appended to its configuration."""
    with ExitStack() as stack:

        def start(kind: type[S], extra_config: str) -> S:
            with skipped_or_failed_when_missing():
                return stack.enter_context(services.private(kind, extra_config=extra_config))

        yield start


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A certificate authority of this run, and a server certificate for 127.0.0.1 and localhost."""
    if shutil.which("openssl") is None:
        skip_or_fail(Missing("openssl", "run `apt-get install openssl`"))
    return Certificates.create(tmp_path_factory.mktemp("certificates"))
