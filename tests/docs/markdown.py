"""The repository's Markdown files: their code blocks, their links, and the parts that are written by programs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})\s*([\w+-]*)")
_NOTE = re.compile(r"<!-- (.*) -->")
_NOT_RUN = re.compile(r"not run: \S.*|file: \S+")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*?)\s*$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, text, the number of its first line, and what a comment on the line before it says.

    A block that stands for a file of the reader's does not run by itself, nor does one with a reason not to.
    """

    language: str
    text: str
    line: int
    note: str

    @property
    def runs(self) -> bool:
        return _NOT_RUN.fullmatch(self.note) is None

    def noted(self, name: str) -> str | None:
        """What follows ``name:`` in its comment."""
        found, _, value = self.note.partition(": ")
        return value if found == name else None


def pages() -> list[Path]:
    """Every Markdown file of the repository; folders whose names begin with a dot are tools' own."""
    found: list[Path] = []
    for folder, folders, files in os.walk(REPOSITORY):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(folder, name) for name in files if name.endswith(".md")]
    return sorted(found)


def name(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks in order. An unclosed fence ends with the page, as Markdown has it."""
    fence, language, begin, note = "", "", 0, ""
    body: list[str] = []
    previous = ""
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        match = _FENCE.match(line)
        if not fence and match:
            fence, language, begin = match[1], match[2], number + 1
            noted = _NOTE.fullmatch(previous.strip())
            note = "" if noted is None else noted[1]
            body = []
        elif fence and match and match[1].startswith(fence) and not match[2]:
            yield Block(language, "\n".join(body), begin, note)
            fence = ""
        elif fence:
            body.append(line)
        previous = line
    if fence:
        yield Block(language, "\n".join(body), begin, note)


def prose(text: str) -> str:
    """The page without its fenced blocks."""
    lines = text.splitlines()
    for block in blocks(text):
        length = len(block.text.splitlines())
        lines[block.line - 1 : block.line - 1 + length] = [""] * length
    return "\n".join(lines)


def links(text: str) -> list[str]:
    return _LINK.findall(prose(text))


def anchors(text: str) -> set[str]:
    """The fragments its headings can be linked by."""
    headings = (match[1] for line in prose(text).splitlines() if (match := _HEADING.match(line)))
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def replaced(text: str, name: str, content: str) -> str:
    """A page's text with one of its parts written anew."""
    pattern = re.compile(rf"(<!-- begin {name} -->\n).*?(\n<!-- end {name} -->)", re.DOTALL)
    assert len(pattern.findall(text)) == 1, f"the page has no single part called {name!r}"
    return pattern.sub(lambda match: f"{match[1]}\n{content}\n{match[2]}", text)
