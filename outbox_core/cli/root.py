"""The root of the command line: finds commands, and turns whatever they raise into a line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.metadata import version
from typing import Any

import click

from outbox_core.cli.call import Call
from outbox_core.cli.failures import report
from outbox_core.cli.options import debug
from outbox_core.cli.registry import COMMANDS, Entry
from outbox_core.cli.streams import provide, writing


class Root(click.Group):
    """Imports a command's module when the command is run, so that none waits for the others' imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return [entry.name for entry in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        entry = _entry(cmd_name)
        return None if entry is None else entry.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and _entry(args[0]) is None:
            near = get_close_matches(args[0], self.list_commands(ctx), n=1)
            suggestion = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"there is no command {args[0]!r}{suggestion}", ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, entry.summary) for entry in COMMANDS])

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        with writing():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with writing():
            return super().invoke(ctx)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        call = Call()
        provide()
        try:
            code = super().main(
                args,
                prog_name,
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                obj=call,
                **extra,
            )
        except (Exception, KeyboardInterrupt) as error:
            if not standalone_mode:
                raise
            code = report(error, call)
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code


def _entry(name: str) -> Entry | None:
    return next((entry for entry in COMMANDS if entry.name == name), None)


@click.group(
    cls=Root,
    invoke_without_command=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Settings come from OUTBOX_* variables; options win. Exit codes: docs/reference/cli.md.",
)
@click.version_option(version("outbox-core"), prog_name="outbox")
@debug
def root() -> None:
    """Run and look after transactional outboxes on PostgreSQL."""
