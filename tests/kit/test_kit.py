"""The kit itself: what it waits for and forbids, whether its table is of the present source, and who uses it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.kit.tuning import CONSTANTS, constant, tune
from tests.kit.waiting import quiet_for, until


@pytest.mark.asyncio
async def test_until_waits_for_conditions_of_both_kinds_and_returns_the_seconds() -> None:
    checks = 0

    def third() -> bool:
        nonlocal checks
        checks += 1
        return checks >= 3

    async def later() -> bool:
        return third()

    assert 0.0 < await until(third) < 5.0
    assert await until(later) < 5.0
    assert checks == 4


@pytest.mark.asyncio
async def test_until_fails_in_its_time() -> None:
    with pytest.raises(AssertionError, match=r"the parcel did not come true within 0\.05 s"):
        await until(lambda: False, 0.05, "the parcel")


@pytest.mark.asyncio
async def test_quiet_seconds_pass_in_full_and_a_forbidden_condition_ends_them_at_once() -> None:
    checks = 0

    def third() -> bool:
        nonlocal checks
        checks += 1
        return checks == 3

    await quiet_for(0.05, lambda: False)
    with pytest.raises(AssertionError, match=r"a knock came true after 0\.\d+ of 30 quiet seconds"):
        await quiet_for(30.0, third, "a knock")


@pytest.mark.parametrize("name", CONSTANTS)
def test_each_constant_is_there_and_can_be_changed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = constant(name)
    with monkeypatch.context() as patched:
        tune(patched, **{name: before + 1})
        assert constant(name) == before + 1
    assert constant(name) == before


@pytest.mark.parametrize("level", ["kit", "unit", "contract", "simulation"])
def test_tests_without_servers_import_nothing_from_those_on_servers(level: str) -> None:
    folder = Path(__file__).parents[1] / level
    found = [
        f"{path.relative_to(folder)} imports {node.module}"
        for path in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests.integration")
    ]
    assert found == []


def test_only_the_kit_builds_rows_claims_and_their_answers() -> None:
    folder = Path(__file__).parents[1] / "unit"
    found = [
        f"{path.relative_to(folder)}:{node.lineno} builds {node.func.id}"
        for path in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"Claim", "Delivery", "Leased", "LeasedRow", "Row"}
    ]
    assert found == []
