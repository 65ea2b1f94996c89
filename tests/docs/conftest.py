"""What the Python blocks of the documents may use without saying where it comes from."""

from __future__ import annotations

import pytest


@pytest.fixture
def names() -> dict[str, object]:
    """Names available to every block besides those its page has made; documented where a page relies on one."""
    return {"__name__": "__main__"}
