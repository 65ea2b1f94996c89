"""The built distributions, and clean environments to install them in. Run by the `packaging` session, which builds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.packaging.distributions import Built, Environment, find_built

REPOSITORY = Path(__file__).parents[2]
DIST = os.environ.get("OUTBOX_TEST_DIST")

# Without something built there is nothing to look at, so a plain `pytest` leaves these tests out.
collect_ignore_glob = [] if DIST else ["test_*.py"]


@pytest.fixture(scope="session")
def built() -> dict[str, Built]:
    folder = os.environ.get("OUTBOX_TEST_DIST")
    if folder is None:
        pytest.fail(
            "OUTBOX_TEST_DIST names no folder of built distributions; run these with: nox -s packaging"
        )
    return find_built(Path(folder))


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An empty virtual environment, and an empty folder to run programs in."""
    return Environment.create(tmp_path)
