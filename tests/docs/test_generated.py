"""What the pages say of settings, commands, options, exit codes and mutations is what the code says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.generated import PARTS, walk
from tests.docs.markdown import replaced


@pytest.mark.parametrize(
    ("page", "name", "render"), [pytest.param(*place, PARTS[place], id=place[1]) for place in PARTS]
)
def test_the_page_is_up_to_date(page: Path, name: str, render: Callable[[], str]) -> None:
    """When it is not: ``python -m tests.docs.generated``."""
    text = page.read_text(encoding="utf-8")
    assert text == replaced(text, name, render())


def test_every_command_and_every_option_explains_itself() -> None:
    for path, command in walk():
        assert command.help, path
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert getattr(parameter, "help", None), f"{path} {parameter.name}"
