"""A server that echoes, to be reached through a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.services.proxy import FaultProxy

SECONDS = 5.0
QUIET = 0.05
"""Long enough for an echo to arrive many times over, were it not stopped."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo:
    """A server that sends back what it hears and remembers it."""

    def __init__(self) -> None:
        self.heard = b""
        self.ends = 0
        self.errors: list[OSError] = []
        self.changed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                self.heard += data
                writer.write(data)
                self.changed.set()
                await writer.drain()
            self.ends += 1
            writer.write(b"<end>")
        except OSError as error:
            self.errors.append(error)
        self.changed.set()
        writer.close()


@asynccontextmanager
async def connected(proxy: FaultProxy) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection(*proxy.address)
    try:
        yield reader, writer
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def read(reader: asyncio.StreamReader, count: int) -> bytes:
    async with asyncio.timeout(SECONDS):
        return await reader.readexactly(count)


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(SECONDS):
        return await reader.read()


async def is_silent(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(QUIET):
            await reader.read(1)
    except TimeoutError:
        return True
    return False
