"""Dead letters: list, plan, replay and discard them; and free what else holds messages up.

async with PostgresAdminStore.connect(dsn, "orders_outbox") as store:
    letters = DeadLetters(store, "orders_outbox")
    plan = await letters.plan(Filter(code="PROVIDER.PERMANENT", topic="orders.**"))
    print(plan)
    await letters.replay(plan, rate=50, actor="ada", reason="consumer fixed")
"""

from outbox_core.dead_letters.dead_letters import DeadLetters
from outbox_core.dead_letters.outcome import Outcome
from outbox_core.letters import (
    Action,
    AuditRecord,
    ExceededWindow,
    Filter,
    Group,
    GroupBy,
    LetterPlace,
    Page,
    Plan,
)

__all__ = [
    "Action",
    "AuditRecord",
    "DeadLetters",
    "ExceededWindow",
    "Filter",
    "Group",
    "GroupBy",
    "LetterPlace",
    "Outcome",
    "Page",
    "Plan",
]
