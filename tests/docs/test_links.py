"""Relative links of every Markdown file lead to something that exists."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs import markdown


def broken(page: Path, text: str) -> list[str]:
    """The relative links of a page that lead nowhere: a missing file, or a heading the target does not have."""
    found = []
    for link in markdown.links(text):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (page.parent / unquote(parts.path)) if parts.path else page
        content = text if target == page else None
        if not target.exists() or markdown.REPOSITORY not in [target.resolve(), *target.resolve().parents]:
            found.append(link)
        elif parts.fragment:
            content = target.read_text(encoding="utf-8") if content is None else content
            if parts.fragment not in markdown.anchors(content):
                found.append(link)
    return found


@pytest.mark.parametrize("page", markdown.pages(), ids=markdown.name)
def test_links_of_a_page(page: Path) -> None:
    assert broken(page, page.read_text(encoding="utf-8")) == []


def test_broken_ones_are_found() -> None:
    page = markdown.REPOSITORY / "README.md"
    text = (
        "# A title: with `code`\n[good](LICENSE) [good](#a-title-with-code) [good](https://example.org/x)\n"
        "[bad](nowhere.md) [bad](#nowhere) [bad](CHANGELOG.md#nowhere) [bad](../../etc/passwd)\n"
        "```\n[not a link](nowhere.md)\n```\n"
    )
    assert broken(page, text) == ["nowhere.md", "#nowhere", "CHANGELOG.md#nowhere", "../../etc/passwd"]


def test_every_decision_is_in_the_index() -> None:
    folder = markdown.REPOSITORY / "docs" / "decisions"
    listed = markdown.links((folder / "README.md").read_text(encoding="utf-8"))
    assert listed == sorted(page.name for page in folder.glob("*.md") if page.name != "README.md")


def test_every_decision_says_what_would_make_us_revisit_it() -> None:
    for page in (markdown.REPOSITORY / "docs" / "decisions").glob("0*.md"):
        anchors = markdown.anchors(page.read_text(encoding="utf-8"))
        assert {"context", "decision", "consequences", "what-would-make-us-revisit-it"} <= anchors, page.name
