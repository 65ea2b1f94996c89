"""Only the store of PostgreSQL and the adapters of its drivers know asyncpg; everything else asks the store."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import outbox_core

ROOT = Path(outbox_core.__file__).parent

DRIVER_FOLDERS = {
    "stores/postgres": "the store itself",
    "transactions": "what applications have open",
    "embedded": "starts a PostgreSQL and sees when it answers",
    "demo": "has tables and statements of its own",
    "testing": "has doubles for what applications have open",
}
DRIVER_FILES = {
    "integrations/bound.py": "begin_on is for an asyncpg pool; its type is imported for type checkers alone",
}
STORE_FOLDERS = {
    "stores": "finds it",
    "transactions": "share its statements",
}
STORE_FILES = {
    "schema.py": "the documented schema functions are those of PostgreSQL",
    "embedded/postgres.py": "knows by the store's list which errors mean that the server is not there yet",
}


def importers(package: str) -> Iterator[str]:
    """The files that import a package or something in it, for type checkers or for real."""
    for file in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Import():
                    names = [alias.name for alias in node.names]
                case ast.ImportFrom(module=str(module)):
                    names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
                case _:
                    continue
            if any(name == package or name.startswith(f"{package}.") for name in names):
                yield file.relative_to(ROOT).as_posix()
                break


def others(package: str, folders: dict[str, str], files: dict[str, str]) -> tuple[list[str], set[str]]:
    """The importers that are not on the list, and the files on the list that are none."""
    found = list(importers(package))
    inside = tuple(f"{folder}/" for folder in folders)
    return [name for name in found if not name.startswith(inside) and name not in files], set(files) - set(
        found
    )


def test_only_the_store_and_its_transactions_import_the_driver() -> None:
    assert others("asyncpg", DRIVER_FOLDERS, DRIVER_FILES) == ([], set())


def test_nothing_else_imports_the_store_of_postgresql() -> None:
    assert others("outbox_core.stores.postgres", STORE_FOLDERS, STORE_FILES) == ([], set())


def test_the_search_finds_what_is_there() -> None:
    assert "stores/postgres/sessions.py" in importers("asyncpg")
    assert "stores/registry.py" in importers("outbox_core.stores.postgres")
