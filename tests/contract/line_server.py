"""The broker of the example in `outbox_adapters/README.md`: stores a line of JSON over TCP and confirms it."""

from __future__ import annotations

import asyncio
import json

MAX_LINE = 2_000_000


class LineServer:
    """Keeps its lines and its port over a restart."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._awake = asyncio.Event()
        self._awake.set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, limit=MAX_LINE, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def kill(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.wait_for(self._server.wait_closed(), 5)

    async def freeze(self) -> None:
        self._awake.clear()

    async def thaw(self) -> None:
        self._awake.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            line = await reader.readline()
            await self._awake.wait()
            if not line.endswith(b"\n"):
                return
            if json.loads(line)["headers"]["topic"] == "contract.nowhere.v1":
                writer.write(b"no such topic\n")
            else:
                self.lines.append(line.decode())
                writer.write(b"stored\n")
            await writer.drain()
        except ConnectionError:
            pass
        except ValueError:
            writer.write(b"too large\n")
        finally:
            self._writers.discard(writer)
            writer.close()
