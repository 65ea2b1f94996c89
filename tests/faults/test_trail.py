"""The checker can fail: a write that was accepted under a lease that was not its own is found."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from outbox_core.message import Message
from outbox_core.outbox import Outbox
from outbox_core.store import Failure, Lease, LeasedRow
from outbox_core.stores.postgres.sql import query
from outbox_core.table import TableName
from tests.faults import relay_record, roles
from tests.faults.plan import TABLE, TOPIC
from tests.faults.relay_record import Account, Mark, Presented, RecordingStore, RelayRecord
from tests.faults.test_checker import GOOD, LEASED, OTHERS, PUBLISHED, TTL, honest, judged
from tests.faults.trail import Step, stale_writes
from tests.faults.trial import TRAIL, step_of
from tests.integration.relay.journal import Journal
from tests.kit.deliveries import claim as terms_of_a_claim
from tests.services.postgres import PostgresServer

TAKEN = Step("a1", "r1", "leased", "leased", "t1", "t2", 6.0, row="a1")


@pytest.mark.parametrize(
    "trail",
    [
        pytest.param([LEASED, replace(PUBLISHED, who="r1")], id="another's lease is completed"),
        pytest.param([LEASED, TAKEN, replace(PUBLISHED, old_token="t2")], id="the old owner completes"),
        pytest.param([LEASED, replace(TAKEN, held=1.0)], id="a lease is taken too early"),
        pytest.param([LEASED, Step("a1", "r1", "leased", "pending", "t1", None, 9.0)], id="another releases"),
        pytest.param([LEASED, Step("a1", "r1", "leased", "dead", "t1", None, 1.0)], id="buried by another"),
        pytest.param(
            [LEASED, Step("a1", "r1", "leased", "dead", "t1", None, 6.0)], id="buried after its time"
        ),
        pytest.param([LEASED, replace(PUBLISHED, new_token="t1")], id="published and still leased"),
        pytest.param([LEASED, PUBLISHED, Step("a1", "r0", "published", "published")], id="published twice"),
        pytest.param(
            [
                LEASED,
                Step("a1", "r0", "leased", "dead", "t1"),
                Step("a1", "r0", "dead", "leased", None, "t3"),
            ],
            id="the dead is claimed",
        ),
        pytest.param(
            [LEASED, replace(PUBLISHED, became="pending"), Step("a1", "r1", "pending", "published")],
            id="what was given back is completed",
        ),
        pytest.param([Step("a1", "r1", "pending", "dead")], id="buried without a lease"),
        pytest.param([LEASED, Step("a1", "r1", "leased", "leased", "t1", "t1", 1.0)], id="a lease is edited"),
        pytest.param([LEASED, replace(LEASED, new_token="t2")], id="leased while it is leased"),
        pytest.param([LEASED, replace(LEASED, event_id="a2", who="r1")], id="one token for two owners"),
    ],
)
def test_a_stale_write_that_was_accepted_is_found(trail: list[Step]) -> None:
    verdict = judged(trail=trail)
    assert len(verdict.stale_writes_accepted) == 1
    assert not verdict.good


@pytest.mark.parametrize(
    "trail",
    [
        [LEASED, TAKEN, replace(PUBLISHED, who="r1", old_token="t2")],
        [LEASED, Step("a1", "r0", "leased", "dead", "t1", None, 6.0)],
        [LEASED, Step("a1", "r0", "leased", "pending", "t1", None, 0.1)],
        [LEASED, replace(PUBLISHED, held=9.0)],
    ],
)
def test_what_an_owner_may_do_is_not_stale(trail: list[Step]) -> None:
    assert judged(trail=trail).stale_writes_accepted == []


AGAIN = [LEASED, replace(TAKEN, who="r0"), replace(PUBLISHED, old_token="t2")]
"""One relay has leased a row twice, as one does that stood still meanwhile, and the row was then published by it."""
CLAIMS = {"t1": Mark("r0", 0.0), "t2": Mark("r0", 6.0)}
FIRST = Presented("r0", "publish", "a1", "t1", 6.0)
SECOND = Presented("r0", "publish", "a1", "t2", 6.5)


@pytest.mark.parametrize(
    ("presented", "stale"),
    [
        pytest.param([SECOND], [], id="its own lease"),
        pytest.param([replace(FIRST, accepted=False), SECOND], [], id="the first was refused"),
        pytest.param([replace(FIRST, accepted=None), SECOND], [], id="the first had no answer"),
        pytest.param([replace(SECOND, accepted=None), replace(SECOND, accepted=False)], [], id="sent again"),
        pytest.param([FIRST], ["a1"], id="the lease before"),
        pytest.param([replace(FIRST, accepted=None)], ["a1"], id="the lease before, and no answer"),
        pytest.param([FIRST, replace(SECOND, accepted=False)], ["a1"], id="the second was refused for it"),
        pytest.param(
            [replace(FIRST, accepted=None), replace(SECOND, accepted=False)], ["a1"], id="the same, no answer"
        ),
        pytest.param([FIRST, SECOND], ["a1"], id="both were accepted"),
        pytest.param([SECOND, SECOND], ["a1"], id="accepted twice"),
        pytest.param([replace(SECOND, write="release")], ["a1"], id="another write"),
        pytest.param([replace(SECOND, relay="r1")], ["a1"], id="another relay"),
        pytest.param([replace(SECOND, row="a2")], ["a1", "a2"], id="another row"),
        pytest.param([], ["a1"], id="nobody presented anything"),
    ],
)
def test_a_write_under_a_token_that_was_not_presented_is_stale(
    presented: list[Presented], stale: list[str]
) -> None:
    others = honest(OTHERS)
    told = RelayRecord(CLAIMS, [*presented, *others.presented])
    assert judged(trail=[*AGAIN, *OTHERS], told=told).stale_writes_accepted == stale


@pytest.mark.parametrize("became", ["pending", "published"])
def test_what_is_undone_is_undone_by_its_token_alone(became: str) -> None:
    undo = Presented("r0", "undo_claim", None, "t1", 1.0)
    trail = [LEASED, replace(PUBLISHED, became=became), *OTHERS]
    told = RelayRecord(CLAIMS, [undo, *honest(OTHERS).presented])
    assert bool(judged(trail=trail, told=told).stale_writes_accepted) is (became == "published")
    told = RelayRecord(CLAIMS, [replace(undo, token="t2"), *honest(OTHERS).presented])
    assert judged(trail=trail, told=told).stale_writes_accepted == ["a1"]


@pytest.mark.parametrize("claims", [{}, {"t1": Mark("r1", 0.0)}])
def test_a_lease_under_a_token_of_no_claim_of_its_relay_is_stale(claims: dict[str, Mark]) -> None:
    told = replace(honest(GOOD.trail), claims=claims)
    assert set(judged(told=told).stale_writes_accepted) == {"a1", "a2", "a3", "u1"}


OUTBOX = TableName.parse(f"public.{TABLE}")


class Scene:
    """A table with a trail, and a relay's store that writes down what it is given."""

    def __init__(self, admin: asyncpg.Connection, store: RecordingStore, journal: Journal) -> None:
        self.admin = admin
        self.store = store
        self.journal = journal

    async def lease(self, lock_ttl: float = TTL) -> LeasedRow:
        """The one message; with 0 s, also when somebody has it."""
        claim = terms_of_a_claim(limit=1, lock_ttl=lock_ttl)
        (row,) = (await self.store.claim(OUTBOX, claim)).rows()
        return row

    async def publish(self, row: LeasedRow, *, delete: bool) -> set[Lease]:
        return await self.store.publish(OUTBOX, [row.lease], delete=delete)

    async def clean(self) -> None:
        """Delete all there is in a relay's name, and with its rights, without asking."""
        async with self.admin.transaction():
            await self.admin.execute(f"SET LOCAL faults.relay = 'r0.0'; SET LOCAL ROLE {roles.RELAY}")
            await self.admin.execute(f"DELETE FROM {TABLE}")  # noqa: S608

    async def stale(self) -> int:
        trail = [step_of(row) for row in await self.admin.fetch(TRAIL)]
        assert trail, "nothing was recorded"
        return len(stale_writes(trail, relay_record.read(self.journal.read()), 0.0))


@pytest_asyncio.fixture
async def scene(private_postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Scene]:
    dsn = private_postgres.dsn("postgres")
    await roles.create(dsn)
    admin = await asyncpg.connect(dsn, timeout=10, command_timeout=10)
    journal = Journal(tmp_path / "asked.jsonl")
    store = RecordingStore(f"{roles.address(dsn, roles.RELAY)}?faults.relay=r0.0", Account(journal, "r0.0"))
    try:
        await store.open([OUTBOX])
        await Outbox(TABLE).enqueue(admin, Message(TOPIC, {"n": 1}), allow_autocommit=True)
        yield Scene(admin, store, journal)
    finally:
        await store.close()
        await admin.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("delete", [False, True])
async def test_the_real_trail_and_a_real_store_agree(scene: Scene, delete: bool) -> None:
    first = await scene.lease()
    assert await scene.store.release(OUTBOX, [first.lease], restamp=False) == set()
    second = await scene.lease()
    put_off = Failure(second.id, second.token, "no", 0.0, refund=False, dead=False)
    assert await scene.store.fail(OUTBOX, [put_off]) == set()
    third = await scene.lease()
    fourth = await scene.lease(lock_ttl=0.0)
    assert await scene.publish(third, delete=delete) == {third.lease}
    assert await scene.publish(fourth, delete=delete) == set()
    assert await scene.stale() == 0
    await scene.clean()
    assert await scene.stale() == 0
    (last,) = [step_of(row) for row in await scene.admin.fetch(f"{TRAIL} DESC LIMIT 1")]
    assert (last.was, last.became, last.old_token) == ("leased", "published", str(fourth.token))


@pytest.mark.asyncio
@pytest.mark.parametrize("leased", [False, True])
async def test_cleaning_away_what_is_not_published_is_found_out(scene: Scene, leased: bool) -> None:
    row = await scene.lease()
    if not leased:
        assert await scene.store.release(OUTBOX, [row.lease], restamp=False) == set()
    assert await scene.stale() == 0
    await scene.clean()
    assert await scene.stale() == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("delete", [False, True])
async def test_a_store_that_believes_an_old_token_of_the_same_relay_is_found_out(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, delete: bool
) -> None:
    fence = " AND message.lock_token = done.token"

    def unfenced(name: str, table: TableName) -> str:
        return query(name, table).replace(fence, "")

    assert fence in query("publish_delete" if delete else "publish", OUTBOX)
    monkeypatch.setattr("outbox_core.stores.postgres.store.query", unfenced)
    first = await scene.lease()
    await scene.lease(lock_ttl=0.0)
    assert await scene.publish(first, delete=delete) == set(), "it was not believed"
    assert await scene.stale() == 1
