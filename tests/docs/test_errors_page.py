"""The page of error codes and the error classes say the same, both ways."""

from __future__ import annotations

import inspect
import re

import outbox_core.errors
from outbox_core.errors import OutboxError
from tests.docs import markdown

ROW = re.compile(r"^\| `([A-Z]+\.[A-Z_]+)` \| `(\w+)` \| (\S.*?) \| (\S.*?) \|$", re.MULTILINE)
PAGE = (markdown.REPOSITORY / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")


def test_every_class_is_on_the_page_and_every_row_is_a_class() -> None:
    classes = {
        (member.code, name)
        for name, member in inspect.getmembers(outbox_core.errors, inspect.isclass)
        if issubclass(member, OutboxError)
    }
    rows = [(code, name) for code, name, _, _ in ROW.findall(PAGE)]
    assert len(rows) == len(set(rows))
    assert set(rows) == classes


def test_every_row_is_read() -> None:
    assert len(ROW.findall(PAGE)) == len(re.findall(r"^\| `", PAGE, re.MULTILINE))


def test_rows_stand_under_their_family() -> None:
    for section in PAGE.split("\n## ")[1:]:
        family = section.partition(":")[0]
        assert {code.partition(".")[0] for code, *_ in ROW.findall(section)} == {family}
