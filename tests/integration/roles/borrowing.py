"""Tests of other folders once more, on a fixture of this folder under the same name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

_HARMLESS: Final = {"caplog", "monkeypatch"}
"""Fixtures of pytest's own that bring no other way to the database."""


def borrowed(
    fixture: str, folder: str, *suites: str, but: tuple[str, ...] = ()
) -> dict[str, Callable[..., Any]]:
    """Every test of these suites that works on ``fixture`` alone, parametrized ones too, by a name of its own.

    ``but`` names those that make or break what no least-privilege role may; a name that is no test's is refused.
    """
    found: dict[str, Callable[..., Any]] = {}
    left_out = set(but)
    for suite in suites:
        module = import_module(f"{folder}.{suite}")
        for name, test in inspect.getmembers(module, inspect.isfunction):
            if test.__module__ != module.__name__ or not name.startswith("test_"):
                continue
            if name in left_out:
                left_out.remove(name)
            elif _needs(test) - _HARMLESS == {fixture}:
                found[f"{suite}__{name.removeprefix('test_')}"] = test
    if left_out:
        raise ValueError(f"no such test: {', '.join(sorted(left_out))}")
    return found


def _needs(test: Callable[..., Any]) -> set[str]:
    """The fixtures it asks for."""
    needed = set(inspect.signature(test).parameters)
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize":
            names = mark.args[0]
            needed -= {name.strip() for name in names.split(",")} if isinstance(names, str) else set(names)
    return needed
