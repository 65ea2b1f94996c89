"""Changes of an account arrive in the order they were made, though many accounts change at the same time."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Final
from uuid import UUID, uuid4

import asyncpg
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from examples.environment import address
from outbox_core import Message, Outbox, Relay, schema
from outbox_kafka import KafkaAddress, KafkaDispatcher, from_record

TABLE: Final = "bank_outbox"
TOPIC: Final = "bank.account.changed.v1"
ACCOUNTS: Final = 6
CHANGES: Final = 120
WRITERS: Final = 4

outbox = Outbox(TABLE)


async def change(connection: asyncpg.Connection, account: UUID, cents: int) -> None:
    async with connection.transaction():
        # The UPDATE locks the account until the commit, so no other writer comes between its version and its event.
        version = await connection.fetchval(
            "UPDATE bank_accounts SET cents = cents + $2, version = version + 1 WHERE id = $1 RETURNING version",
            account,
            cents,
        )
        event = {"account": account, "version": version, "cents": cents}
        await outbox.enqueue(connection, Message(TOPIC, event, key=str(account)))


async def write(database_url: str, accounts: list[UUID]) -> None:
    connection = await asyncpg.connect(database_url)
    for number in range(CHANGES // WRITERS):
        await change(connection, accounts[number % ACCOUNTS], cents=number)
    await connection.close()


async def main() -> None:
    database_url, kafka_url = address("OUTBOX_DATABASE_URL"), address("KAFKA_URL")
    servers = KafkaAddress.parse(kafka_url).bootstrap_servers
    accounts = [uuid4() for _ in range(ACCOUNTS)]
    await prepare(database_url, servers, accounts)

    consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest")
    relay = Relay(database_url, table=TABLE, dispatcher=KafkaDispatcher(url=kafka_url))
    versions: dict[str, list[int]] = defaultdict(list)
    async with asyncio.timeout(60), consumer, relay:
        await asyncio.gather(*(write(database_url, accounts) for _ in range(WRITERS)))
        arrived = 0
        async for record in consumer:
            event = from_record(record).json()
            if UUID(event["account"]) in accounts:
                versions[event["account"]].append(event["version"])
                arrived += 1
            if arrived == CHANGES:
                break

    for account, seen in versions.items():
        assert seen == list(range(1, len(seen) + 1)), f"{account} arrived as {seen}"
    print(
        f"{CHANGES} changes of {len(versions)} accounts by {WRITERS} writers: each account's arrived in order"
    )


async def prepare(database_url: str, servers: str, accounts: list[UUID]) -> None:
    await schema.upgrade(database_url, TABLE)
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS bank_accounts"
        " (id uuid PRIMARY KEY, cents bigint NOT NULL DEFAULT 0, version bigint NOT NULL DEFAULT 0)"
    )
    await connection.execute("INSERT INTO bank_accounts (id) SELECT unnest($1::uuid[])", accounts)
    await connection.close()
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    # A key always goes to the same partition, within which Kafka keeps the order. A topic that is there stays as it is.
    await admin.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=1)])
    await admin.close()


if __name__ == "__main__":
    asyncio.run(main())
