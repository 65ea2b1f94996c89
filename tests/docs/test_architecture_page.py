"""The architecture page draws every stage and names files that exist; so does the map of the relay."""

from __future__ import annotations

import re

from outbox_core import relay
from outbox_core.relay.in_flight import Stage
from tests.docs import markdown

PACKAGE = markdown.REPOSITORY / "outbox_core"
PAGE = (markdown.REPOSITORY / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")


def test_the_page_draws_every_stage() -> None:
    (states,) = (
        block.text for block in markdown.blocks(PAGE) if block.text.lstrip().startswith("stateDiagram")
    )
    assert set(re.findall(r"\b[A-Z]{2,}\b", states)) == {stage.name for stage in Stage}


def test_the_page_names_files_that_exist() -> None:
    named = re.findall(r"`([\w/]+(?:/|\.py))`", PAGE)
    assert len(named) > 40
    assert [
        path for path in named if not (PACKAGE / path).exists() and not (PACKAGE.parent / path).exists()
    ] == []


def test_the_page_has_every_folder() -> None:
    folders = [
        folder.name + "/" for folder in PACKAGE.iterdir() if folder.is_dir() and folder.name[0] not in "._"
    ]
    assert [folder for folder in sorted(folders) if f"`{folder}`" not in PAGE] == []


def test_a_message_passes_at_most_eleven_files() -> None:
    section = PAGE.partition("\n## One message, eleven files\n")[2].partition("\n## ")[0]
    walk = re.findall(r"^\| (\d+) \| `(\S+)` \|", section, re.MULTILINE)
    assert [int(number) for number, _ in walk] == list(range(1, 12))
    assert len({path for _, path in walk}) == 11


def test_the_map_of_the_relay_names_every_folder_and_files_that_exist() -> None:
    text = relay.__doc__ or ""
    named = re.findall(r"[\w/]+\.py\b", text)
    assert len(named) > 10
    assert [path for path in named if not (PACKAGE / "relay" / path).exists()] == []
    folders = {path.name for path in (PACKAGE / "relay").iterdir() if (path / "__init__.py").exists()}
    assert {path.partition("/")[0] for path in named if "/" in path} == folders
