"""Every Python block of every Markdown file runs: those of one page in order, sharing names, in one event loop."""

from __future__ import annotations

import ast
import inspect

import pytest

from tests.docs import markdown
from tests.services.postgres import Database
from tests.services.server import Server

TEXTS = {markdown.name(page): page.read_text(encoding="utf-8") for page in markdown.pages()}
PAGES = [
    page
    for page, text in TEXTS.items()
    if any(block.language == "python" and block.runs for block in markdown.blocks(text))
]
NEEDS_POSTGRES = "<!-- runs on: postgres -->"
ON_POSTGRES = [page for page in PAGES if NEEDS_POSTGRES in TEXTS[page]]
BROKERS = {"amqp": "rabbitmq_server", "kafka": "kafka_server", "nats": "nats_server"}
ON_BROKERS = [
    pytest.param(page, kind, marks=getattr(pytest.mark, kind))
    for kind in BROKERS
    for page in PAGES
    if f"<!-- runs on: postgres and {kind} -->" in TEXTS[page]
]
ALONE = [page for page in PAGES if "<!-- runs on: " not in TEXTS[page]]


async def run_page(page: str, text: str, names: dict[str, object]) -> None:
    """Run a page's blocks; line numbers in a traceback are those of the page."""
    for block in markdown.blocks(text):
        if block.language != "python" or not block.runs:
            continue
        source = "\n" * (block.line - 1) + block.text
        code = compile(source, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        result = eval(code, names)  # noqa: S307 - the project's own documents
        if inspect.iscoroutine(result):
            await result


@pytest.mark.parametrize("page", ALONE)
@pytest.mark.asyncio
async def test_the_python_of_a_page_runs(page: str, names: dict[str, object]) -> None:
    await run_page(page, TEXTS[page], names)


@pytest.mark.parametrize("page", ON_POSTGRES)
@pytest.mark.asyncio
async def test_the_python_of_a_page_runs_on_postgres(
    page: str, names: dict[str, object], database: Database
) -> None:
    """The name ``dsn`` is the address of an empty database."""
    await run_page(page, TEXTS[page], names | {"dsn": database.dsn})


@pytest.mark.parametrize(("page", "kind"), ON_BROKERS)
@pytest.mark.asyncio
async def test_the_python_of_a_page_runs_on_a_broker(
    page: str, kind: str, names: dict[str, object], database: Database, request: pytest.FixtureRequest
) -> None:
    """``dsn`` is the address of an empty database and ``url`` that of the broker."""
    server: Server = request.getfixturevalue(BROKERS[kind])
    url = server.address if "://" in server.address else f"{kind}://{server.address}"
    await run_page(page, TEXTS[page], names | {"dsn": database.dsn, "url": url})


def test_every_page_runs_somewhere() -> None:
    on_brokers = [str(parameters.values[0]) for parameters in ON_BROKERS]
    assert sorted([*ALONE, *ON_POSTGRES, *on_brokers]) == sorted(PAGES)


def test_the_readme_is_among_them() -> None:
    assert "README.md" in PAGES


@pytest.mark.asyncio
async def test_blocks_share_names_and_may_await() -> None:
    names: dict[str, object] = {}
    text = "```python\nimport asyncio\nx = 1\n```\n\n~~~python\nx += 1\nawait asyncio.sleep(0)\n~~~\n"
    await run_page("page.md", text, names)
    assert names["x"] == 2


@pytest.mark.asyncio
async def test_a_failure_points_at_its_line_of_the_page() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        await run_page("page.md", "# Title\n\n```python\nx = 1\nx / 0\n```\n", {})
    assert (str(raised.traceback[-1].path).endswith("page.md"), raised.traceback[-1].lineno + 1) == (True, 5)


def test_only_a_comment_with_a_reason_keeps_a_block_from_running() -> None:
    def runs(before: str) -> bool:
        (block,) = markdown.blocks(f"{before}\n```python\n1\n```\n")
        return block.runs

    assert not runs("<!-- not run: needs a broker -->")
    assert runs("<!-- not run: -->")
    assert runs("<!-- not run: needs a broker -->\n")
    assert runs("text")
