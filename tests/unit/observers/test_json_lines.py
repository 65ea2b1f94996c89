"""The audit: one object a line, stable names, summaries only."""

from __future__ import annotations

import io
import json
import re
from datetime import datetime, timedelta
from typing import Any

import pytest

from outbox_core import observer as events
from outbox_core.errors import ConfigError
from outbox_core.observer import Event
from outbox_core.observers.json_lines import JsonLinesObserver, name_of
from tests.kit.samples import EVENT_ID, TABLE, TENANT, TOPIC, every_event, kinds, meta


def written(*observed: Event, **settings: Any) -> list[dict[str, Any]]:
    stream = io.StringIO()
    observe = JsonLinesObserver(stream, **settings)
    for event in observed:
        observe(event)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_delivery_is_a_line_for_each_message() -> None:
    lines = written(events.Dispatched(TABLE, [meta(), meta("other.v1")], [0.25, 0.5]))
    assert [(line["topic"], line["seconds"]) for line in lines] == [(TOPIC, 0.25), ("other.v1", 0.5)]
    line = lines[0]
    assert datetime.fromisoformat(line.pop("at")).utcoffset() == timedelta(0)
    assert line == {
        "event": "dispatched",
        "table": "shop.orders_outbox",
        "topic": TOPIC,
        "event_id": str(EVENT_ID),
        "tenant_id": str(TENANT),
        "sequence": 7,
        "attempts": 2,
        "replays": 1,
        "seconds": 0.25,
    }


def test_an_enqueue_has_size_and_digest() -> None:
    (line,) = written(events.Enqueued(TABLE, TOPIC, EVENT_ID, TENANT, 7, 34, b"\x01\x02"))
    assert (line["size"], line["digest"], line["sequence"]) == (34, "0102", 7)


def test_a_look_at_the_table_says_what_is_a_lower_bound() -> None:
    (line,) = written(every_event()[-4], only=[events.Measured])
    assert line["event"] == "measured"
    assert line["locked"] == {"value": 3, "exact": False}
    assert line["leader"] == {"term": 9, "holder": "host:1:abc", "heartbeat_age": 0.5}
    assert line["measured_at"] == "2026-01-02T00:00:00.000000+00:00"


def test_by_default_what_says_nothing_new_is_left_out() -> None:
    found = {line["event"] for line in written(*every_event())}
    assert found == {name_of(kind) for kind in kinds() - {events.Claimed, events.Measured, events.Published}}


def test_kinds_can_be_chosen() -> None:
    assert {line["event"] for line in written(*every_event(), only=[events.Dead, events.Replayed])} == {
        "dead",
        "replayed",
    }
    with pytest.raises(ConfigError, match="only must be a collection of event classes"):
        JsonLinesObserver(io.StringIO(), only=["dead"])  # type: ignore[list-item]


def test_tenants_can_be_hashed_or_left_out() -> None:
    plain, hashed = written(every_event()[0])[0], written(every_event()[0], tenants="hash")[0]
    assert plain["tenant_id"] == str(TENANT)
    assert re.fullmatch(r"[0-9a-f]{16}", hashed["tenant_id"])
    for line in written(*every_event(), tenants="drop", only=list(kinds())):
        assert "tenant_id" not in line
        assert str(TENANT) not in json.dumps(line)


def test_no_line_says_too_much() -> None:
    assert "CANARY" not in json.dumps(written(*every_event(), only=list(kinds())))


def test_lines_are_whole_when_an_event_is_over() -> None:
    class Stream(io.StringIO):
        flushed = 0

        def flush(self) -> None:
            self.flushed = len(self.getvalue())

    stream = Stream()
    observe = JsonLinesObserver(stream)
    for event in every_event():
        observe(event)
        assert stream.flushed == len(stream.getvalue())
        assert stream.getvalue().endswith("\n") or not stream.getvalue()


def test_texts_with_line_breaks_stay_on_one_line() -> None:
    (line,) = written(events.Released(TABLE, 1, "one\ntwo\r\u2028three"))
    assert line["reason"] == "one\ntwo\r\u2028three"
