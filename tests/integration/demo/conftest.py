"""Folders for servers that the product itself starts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that every account can enter, unlike `tmp_path`: PostgreSQL does not run as root."""
    folder = Path(tempfile.mkdtemp(prefix="outbox-demo-test-"))
    folder.chmod(0o755)
    yield folder
    rmtree(folder)
