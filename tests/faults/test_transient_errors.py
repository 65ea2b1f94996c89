"""The database gives up a statement of a relay's for nobody's fault: nothing is charged, all is delivered."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from outbox_core.observer import Dead, Failed
from tests.integration.relay.bench import TABLE, Bench, prepared
from tests.kit.gates import ignore
from tests.services.postgres import Database

pytestmark = pytest.mark.asyncio
TIMES = 3
TROUBLE = """
CREATE SEQUENCE trouble;
CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF {condition} AND nextval('trouble') <= {times} THEN
        RAISE EXCEPTION 'not now' USING ERRCODE = '{code}';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER trouble BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION trouble();
"""


@pytest_asyncio.fixture
async def bench(database: Database) -> AsyncIterator[Bench]:
    async with prepared(database) as bench:
        yield bench


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param("NEW.lock_token IS NOT NULL", id="claim"),
        pytest.param("NEW.published_at IS NOT NULL", id="record"),
    ],
)
@pytest.mark.parametrize("code", ["40001", "40P01", "55P03", "57014"])
async def test_what_the_database_gives_up_is_done_again_and_charged_to_nobody(
    bench: Bench, code: str, condition: str
) -> None:
    await bench.connection.execute(TROUBLE.format(condition=condition, times=TIMES, code=code, table=TABLE))
    await bench.enqueue(*range(5))
    async with bench.relay(ignore):
        assert await bench.settled() == {"published": 5}
    assert await bench.connection.fetchval("SELECT last_value FROM trouble") > TIMES
    assert {row["attempts"] for row in await bench.rows()} == {1}
    assert not bench.heard.of(Dead)
    assert not bench.heard.of(Failed)
