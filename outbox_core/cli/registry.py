"""Every command there is, and where it lives: help and completion list them without importing them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Final

import click


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: its name, the module and variable that hold it, and what the list of commands says of it."""

    name: str
    place: str
    summary: str

    def load(self) -> click.Command:
        module, _, variable = self.place.partition(":")
        command: object = getattr(import_module(f"outbox_core.cli.commands.{module}"), variable)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.place} is a {type(command).__name__}, not a command")
        return command


COMMANDS: Final = (
    Entry("relay", "relay:relay", "Deliver the messages of one or more tables."),
    Entry("status", "status:status", "What is pending, in flight and dead, and who leads."),
    Entry("pending", "pending:pending", "List the messages still to be delivered."),
    Entry("dead", "dead:dead", "See, replay and discard dead messages; release held ones."),
    Entry("clean", "clean:clean", "Delete what was published, or died, long enough ago."),
    Entry("enqueue", "enqueue:enqueue", "Write a message, for trying things."),
    Entry("schema", "schema:schema", "Create, verify, print and upgrade outbox tables."),
    Entry("doctor", "doctor:doctor", "Find out what is wrong, and what to do about it."),
    Entry("dev", "dev:dev", "Keep a PostgreSQL, a NATS and a relay up, for trying an app against."),
    Entry("demo", "demo:demo", "Watch a relay die and a broker freeze, and nothing get lost."),
    Entry("completion", "completion:completion", "Print the completion script of a shell."),
)
"""In the order in which help lists them."""
