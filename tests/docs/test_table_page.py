"""The reference page of the table names every column, index, parameter and constraint, and no other."""

from __future__ import annotations

import re

from outbox_core.schema import migrations
from outbox_core.stores.postgres.catalog.expected import AUDIT, LEADER, OUTBOX, VERSION, Column
from tests.docs import markdown

PAGE = (markdown.REPOSITORY / "docs" / "reference" / "table.md").read_text(encoding="utf-8")
SECTIONS = {title: text for title, _, text in (part.partition("\n") for part in PAGE.split("\n## ")[1:])}
COLUMN = re.compile(r"^\| `(\w+)` \| `(\w+)` \| (yes|no) \| (?:`(.+?)` )?\| \S.* \|$", re.MULTILINE)


def shown(name: str, column: Column) -> tuple[str, str, str, str]:
    default = re.sub(r"nextval\(.*\)", "nextval(…)", column.default or "")
    kind = {"timestamp with time zone": "timestamptz", "double precision": "float8"}.get(
        column.type, column.type
    )
    return name, kind, "yes" if column.nullable else "no", default


def test_columns() -> None:
    assert COLUMN.findall(SECTIONS["Columns"]) == [shown(*item) for item in OUTBOX.columns.items()]
    assert COLUMN.findall(SECTIONS["Audit"]) == [shown(*item) for item in AUDIT.columns.items()]
    leader, version = SECTIONS["Shared by a schema's outboxes"].split("`outbox_schema_version`")
    assert COLUMN.findall(leader) == [shown(*item) for item in LEADER.columns.items()]
    assert COLUMN.findall(version) == [shown(*item) for item in VERSION.columns.items()]


def test_constraints() -> None:
    assert set(re.findall(r"`<name>(_\w+)`", SECTIONS["Constraints"])) == set(OUTBOX.constraints)


def test_indexes() -> None:
    rows = re.findall(r"^\| `<name>(_\w+)` \| `(.+?)` \| `(.+?)` \|", SECTIONS["Indexes"], re.MULTILINE)
    definitions = "\n".join(f"{suffix} {definition}" for suffix, definition in OUTBOX.indexes.items())
    expected = re.findall(r"^(_\w+) btree \((.+?)\) WHERE (.+)$", definitions, re.MULTILINE)
    assert len(rows) == len(OUTBOX.indexes)
    assert rows == [
        (suffix, columns, re.sub(r"[()]", "", predicate)) for suffix, columns, predicate in expected
    ]


def test_parameters() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|", SECTIONS["Storage"], re.MULTILINE)
    assert rows == list(OUTBOX.parameters.items())


def test_versions() -> None:
    rows = re.findall(r"^\| (\d+) \| .+ \| (.+) \|$", SECTIONS["Versions"].replace("`", ""), re.MULTILINE)
    assert rows == [(str(step.version), step.locks) for step in migrations()]
