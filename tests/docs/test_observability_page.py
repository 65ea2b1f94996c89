"""The page's table of JSON lines names the fields that they have."""

from __future__ import annotations

import re

from outbox_core.observers.json_lines import name_of
from tests.docs import markdown
from tests.kit.samples import every_event, kinds
from tests.unit.observers.test_json_lines import written

PAGE = (markdown.REPOSITORY / "docs" / "how-to" / "observability.md").read_text(encoding="utf-8")
ALWAYS = {"event", "at", "table"}
OF_A_MESSAGE = {"topic", "event_id", "tenant_id", "sequence", "attempts", "replays"}


def test_every_kind_has_the_fields_that_the_page_lists() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \|(.*)\|$", PAGE, re.MULTILINE))
    lines = {line["event"]: line for line in written(*every_event(), only=list(kinds()))}
    assert set(lines) == {name_of(kind) for kind in kinds()}
    for event, line in lines.items():
        further = set(re.findall(r"`(\w+)`", listed[event]))
        about_a_message = {"topic"} <= line.keys()
        expected = ALWAYS | further | (OF_A_MESSAGE if about_a_message else set())
        if event == "enqueued":
            expected -= {"attempts", "replays"}
        assert line.keys() == expected, event
