from __future__ import annotations

import re

import pytest

from outbox_core.encoding import JsonText
from outbox_core.errors import EncodingError
from outbox_core.jsonb import MAX_DEPTH


@pytest.mark.parametrize(
    "text",
    [
        "null",
        ' {"a" : 1,\n"b":[]} ',
        '"\\\\u0000"',
        '"\\ud83d\\ude00"',
        '{"a":1,"a":2}',
        "1.7976931348623157e308",
        "5e-324",
        "1e399",
        "1e-399",
        "0." + "1" * 16_383,
        "1" * 131_072,
        "-0.0",
        "[" * MAX_DEPTH + "]" * MAX_DEPTH,
    ],
)
def test_text_that_is_json_is_kept_as_it_is(text: str) -> None:
    assert JsonText(text).text == text


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("", "payload", "it is not JSON: Expecting value at line 1, column 1"),
        ('{"a":\n secret}', "payload", "it is not JSON: Expecting value at line 2, column 2"),
        ("{'a': 1}", "payload", "it is not JSON"),
        ("[1] [2]", "payload", "it is not JSON: Extra data at line 1, column 5"),
        ('"a\nb"', "payload", "it is not JSON: Invalid control character"),
        ("[NaN]", "payload", "it has NaN, which is not JSON; send null or a string instead"),
        ('{"a":-Infinity}', "payload", "it has -Infinity, which is not JSON"),
        ('{"a":["\\u0000"]}', "payload.a[0]", "the text has NUL"),
        ('{"a":"\\u0000","a":1}', "payload", "it has NUL (\\u0000), which PostgreSQL cannot store"),
        ('{"a":"\\\\\\u0000"}', "payload.a", "the text has NUL (\\u0000) at position 1"),
        ('{"a":"\\ud800"}', "payload.a", "the text has the lone surrogate U+D800"),
        ('"\ud800"', "payload", "the text has the lone surrogate U+D800"),
        (
            "[1e400]",
            "payload",
            "a number in it has an exponent and more than 400 digits when PostgreSQL writes it out",
        ),
        ("1e-400", "payload", "a number in it has an exponent and more than 400 digits"),
        ("1e131072", "payload", "a number in it is larger, or finer, than PostgreSQL's numeric can hold"),
        ("1e-16384", "payload", "a number in it is larger, or finer"),
        ("[1e99999999999999999999]", "payload", "a number in it is larger, or finer"),
        ("1" * 131_073, "payload", "a number in it is larger, or finer"),
        ("[" * 201 + "]" * 201, "payload" + "[0]" * 200, "it is nested more than 200 levels deep"),
        ("[" * 200_000, "payload", "it is nested more than 200 levels deep"),
        (
            b"{}",
            "payload",
            "JSON text must be a str, got bytes; decode it first, or send it untouched as body=",
        ),
        ({"a": 1}, "payload", "JSON text must be a str, got dict"),
    ],
)
def test_text_that_jsonb_would_refuse_is_refused(text: str, path: str, message: str) -> None:
    with pytest.raises(EncodingError, match=re.escape(message)) as caught:
        JsonText(text)

    assert caught.value.path == path
    assert "secret" not in str(caught.value)
