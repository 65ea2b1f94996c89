"""The parts of the pages that are written from the code. ``python -m tests.docs.generated`` brings them up to date.

Each stands between ``<!-- begin name -->`` and ``<!-- end name -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from outbox_core.cli.failures import ExitCode
from outbox_core.cli.registry import COMMANDS
from outbox_core.cli.root import root
from outbox_core.config import VARIABLES, Settings
from tests.docs.markdown import REPOSITORY, replaced
from tests.faults import page as faults
from tests.mutations import page as mutations

REFERENCE = REPOSITORY / "docs" / "reference"
EXPLANATION = REPOSITORY / "docs" / "explanation"


def settings() -> str:
    defaults = Settings().as_env()
    lines = ["| variable | default | accepted | what |", "|---|---|---|---|"]
    for variable in VARIABLES:
        default = defaults.get(variable.name, "")
        shown = f"`{default}`" if default else ""
        lines.append(
            f"| `{variable.name}` | {shown} | {variable.kind.accepted} | {_cell(variable.meaning)} |"
        )
    return "\n".join(lines)


def commands() -> str:
    return "\n\n".join(_section(path, command) for path, command in walk())


def exit_codes() -> str:
    source = (REPOSITORY / "outbox_core" / "cli" / "failures.py").read_text(encoding="utf-8")
    lines = ["| code | name | meaning |", "|---|---|---|"]
    for code in ExitCode:
        match = re.search(rf'    {code.name} = \d+\n    """(.*?)"""', source, re.DOTALL)
        meaning = "Done." if match is None else " ".join(match[1].split())
        lines.append(f"| {code.value} | `{code.name}` | {meaning} |")
    return "\n".join(lines)


def walk() -> Iterator[tuple[str, click.Command]]:
    """Every command and group below the root, as it is called."""
    for entry in COMMANDS:
        yield from _below(f"outbox {entry.name}", entry.load())


def _below(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _below(f"{path} {name}", child)


def _section(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path, parent=click.Context(root, info_name="outbox"))
    text = [f"### `{path}`", _paragraphs(command.help or "")]
    if isinstance(command, click.Group):
        return "\n\n".join(text)
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    usage = " ".join([path, "[OPTIONS]", *(each.make_metavar(context) for each in arguments)])
    text.append(f"    {usage}")
    rows = ["| option | what |", "|---|---|"]
    for parameter in command.params:
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            rows.append(f"| `{_cell(record[0])}` | {_cell(record[1])} |")
    return "\n\n".join([*text, "\n".join(rows)])


def _paragraphs(text: str) -> str:
    """Help as Markdown; a paragraph that click leaves alone is code."""
    found: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        if paragraph.strip().startswith("\b"):
            lines = paragraph.strip().removeprefix("\b").strip("\n").splitlines()
            found.append("\n".join(f"    {line.strip()}" for line in lines))
        else:
            found.append(" ".join(paragraph.split()))
    return "\n\n".join(found)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PARTS: dict[tuple[Path, str], Callable[[], str]] = {
    (REFERENCE / "settings.md", "settings"): settings,
    (REFERENCE / "cli.md", "commands"): commands,
    (REFERENCE / "cli.md", "exit codes"): exit_codes,
    (EXPLANATION / "mutations.md", "mutations"): mutations.documented,
    (faults.PAGE, "recorded run"): faults.recorded,
    (faults.PAGE, "mutants"): faults.mutants,
    (faults.PAGE, "matrix"): faults.matrix,
    (faults.PAGE, "soak"): faults.soak,
}


def main() -> None:
    for (page, name), render in PARTS.items():
        page.write_text(replaced(page.read_text(encoding="utf-8"), name, render()), encoding="utf-8")


if __name__ == "__main__":
    main()
