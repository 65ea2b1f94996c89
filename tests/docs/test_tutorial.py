"""The tutorial, walked as its reader walks it: its files are written, its commands typed, on the servers it starts."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import markdown
from tests.docs.terminal import Terminal

pytestmark = pytest.mark.timeout(180)
PAGE = markdown.REPOSITORY / "docs" / "tutorial" / "first-event.md"
BLOCKS = list(markdown.blocks(PAGE.read_text(encoding="utf-8")))


@pytest.fixture
def folder(scratch: Path) -> Path:
    return scratch


@pytest.fixture
def terminals(folder: Path) -> Iterator[dict[str, Terminal]]:
    opened: dict[str, Terminal] = {}
    yield opened
    for terminal in reversed(opened.values()):
        terminal.close()


def test_its_files_and_commands_do_what_it_says(folder: Path, terminals: dict[str, Terminal]) -> None:
    work, temporary = folder / "shop", folder / "tmp"
    work.mkdir()
    temporary.mkdir(mode=0o777)
    temporary.chmod(0o777)
    for block in BLOCKS:
        if (name := block.noted("file")) is not None:
            (work / name).write_text(block.text + "\n", encoding="utf-8")
        elif (name := block.noted("terminal")) is not None:
            if name not in terminals:
                terminals[name] = Terminal(work, temporary=temporary, output=folder / f"{name}.screen")
            for line in block.text.splitlines():
                if line.startswith("$ "):
                    terminals[name].type(line.removeprefix("$ "))
                else:
                    terminals[name].expect(line)
        elif (name := block.noted("shown by")) is not None:
            for line in block.text.splitlines():
                terminals[name].expect(line)

    assert "nobody" not in terminals["consumer"].screen
    for terminal in terminals.values():
        assert "Traceback" not in terminal.screen, terminal.screen
    for name in ("tests", "customer", "consumer", "shop", "servers"):
        terminals[name].interrupt()
    for name in ("shop", "servers"):
        assert "Traceback" not in terminals[name].screen, terminals[name].screen
    deadline = time.monotonic() + 20
    while list(temporary.iterdir()):
        assert time.monotonic() < deadline, f"left behind: {list(temporary.iterdir())}"
        time.sleep(0.05)


def test_every_block_is_walked_or_says_why_not() -> None:
    known = ("file", "terminal", "shown by", "not walked")
    assert [block.line for block in BLOCKS if not any(block.noted(name) for name in known)] == []
    assert [block.noted("file") for block in BLOCKS if block.language == "python"] == [
        "shop.py",
        "consumer.py",
        "test_shop.py",
    ]


def test_files_of_the_reader_are_on_no_other_page() -> None:
    """A block that stands for a file is not run by itself, so another page must not have one."""
    texts = {page: page.read_text(encoding="utf-8") for page in markdown.pages()}
    found = [
        page for page, text in texts.items() if any(block.noted("file") for block in markdown.blocks(text))
    ]
    assert found == [PAGE]


def test_what_it_imports_is_what_it_installs() -> None:
    """An extra or a package forgotten in the command of step 1 would stop a reader right there."""
    (install,) = (block.text for block in BLOCKS if block.noted("not walked"))
    sources = [block.text for block in BLOCKS if block.noted("file")]
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).partition(".")[0]
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    installed_by = {
        "outbox_core": "outbox-core[",
        "asyncpg": "outbox-core[",
        "fastapi": ",fastapi,",
        "nats": ",nats]",
        "outbox_nats": "outbox_adapters/nats",
        "pytest": " pytest",
    }
    assert imported - {"asyncio", "contextlib", "os", "shop", "typing"} == installed_by.keys()
    for needed in [*installed_by.values(), "cli,embedded", " uvicorn", " httpx2"]:
        assert needed in install
