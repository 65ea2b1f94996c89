"""The answer of the health endpoints on the page has the fields of the real one."""

from __future__ import annotations

import json

from outbox_core.integrations.health import AppHealth
from outbox_core.relay.health import Health
from outbox_core.status import Count
from tests.docs import markdown

PAGE = markdown.REPOSITORY / "docs" / "how-to" / "web.md"


def test_the_fields_of_the_health_endpoints() -> None:
    relay = Health(True, True, False, 0.4, Count(12), 7.2, (), ())
    (block,) = (
        block for block in markdown.blocks(PAGE.read_text(encoding="utf-8")) if block.language == "json"
    )

    assert json.loads(block.text) == AppHealth(True, True, False, (), (relay,)).as_json()
