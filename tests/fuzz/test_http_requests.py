"""Requests to the small HTTP server of metrics and health."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from outbox_core.integrations.http import Answer, Request, serve
from tests.fuzz.hostile import fuzzed, spoilt

GOOD = (
    "GET /metrics HTTP/1.1\r\nhost: a\r\naccept: text/plain\r\n\r\n",
    "HEAD /metrics?x=1 HTTP/1.0\r\n\r\n",
)
requests = st.one_of(
    st.binary(max_size=200), spoilt(GOOD).map(lambda text: text.encode("utf-8", "surrogatepass"))
)


@fuzzed
@given(st.lists(requests, min_size=1, max_size=4))
@example([b"GET /metrics HTTP/1.1\r\n" + b"x" * 20_000])
@example([b"GET / HTTP/1.1\r\na: \xff\r\n\r\n", b"\0\r\n\r\n", b"GET  /metrics HTTP/1.1\r\n\r\n"])
def test_every_request_has_an_answer_and_the_server_goes_on(sent: list[bytes]) -> None:
    answers = asyncio.run(_asked([*sent, GOOD[0].encode()]))

    for answer in answers[:-1]:
        assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
        assert not answer.startswith(b"HTTP/1.1 500")
        assert answer.count(b"\r\n\r\n") <= 1
    assert answers[-1].startswith(b"HTTP/1.1 200 OK\r\n")


async def _asked(requests: list[bytes]) -> list[bytes]:
    def metrics(request: Request) -> Answer:
        return Answer(200, request.accept.encode("latin-1").replace(b"\r", b""))

    async with serve("127.0.0.1", 0, {"/metrics": metrics}) as address:
        answers: list[bytes] = []
        for request in requests:
            reader, writer = await asyncio.open_connection(address.host, address.port)
            with suppress(ConnectionError):
                writer.write(request)
                writer.write_eof()
                await writer.drain()
            answer = b""
            with suppress(ConnectionError):
                answer = await reader.read()
            answers.append(answer)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        return answers
