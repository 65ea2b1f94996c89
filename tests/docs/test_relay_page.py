"""The relay's how-to lists every setting with its default, and no other; its page draws every state."""

from __future__ import annotations

import re
from dataclasses import fields

from outbox_core.record import State
from outbox_core.relay.dispatching.breaker import BreakerState
from outbox_core.relay.settings import RelaySettings
from tests.docs import markdown

HOW_TO = (markdown.REPOSITORY / "docs" / "how-to" / "relay.md").read_text(encoding="utf-8")
EXPLANATION = (markdown.REPOSITORY / "docs" / "explanation" / "relay.md").read_text(encoding="utf-8")


def test_settings() -> None:
    section = HOW_TO.partition("\n## Settings\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `(.+?)` \| \S.* \|$", section, re.MULTILINE)
    assert rows == [(setting.name, repr(setting.default)) for setting in fields(RelaySettings)]


def test_states() -> None:
    rows, breaker = (
        set(re.findall(r"^    (\w+) --> ", block.text, re.MULTILINE))
        for block in markdown.blocks(EXPLANATION)
        if block.language == "mermaid"
    )
    assert rows == {state.value for state in State}
    assert breaker == {state.value for state in BreakerState}
