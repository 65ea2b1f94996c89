"""``outbox completion``: the script that lets a shell complete commands, options and their values."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from outbox_core.cli.options import debug


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@debug
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash:  outbox completion bash > ~/.local/share/bash-completion/completions/outbox
    zsh:   outbox completion zsh > "${fpath[1]}/_outbox"
    fish:  outbox completion fish > ~/.config/fish/completions/outbox.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for {shell}", ctx=context)
    root = context.find_root().command
    click.echo(kind(root, {}, "outbox", "_OUTBOX_COMPLETE").source())
