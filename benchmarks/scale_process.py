"""A relay in a process of its own that runs until its standard input is closed.

    python -m benchmarks.scale_process '{"dsn": "postgresql://…", "tables": ["a.b"], "settings": {}}'

Says ``ready`` once it runs, and at the end what it published and its processor time, as one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from typing import Any

from benchmarks.children import event_loop
from outbox_core.meta import DispatchedMessage
from outbox_core.observer import Event, Published
from outbox_core.relay import Relay

_LONGEST_SECONDS = 1800.0


async def _nothing(_: DispatchedMessage) -> None:
    return None


async def serve(order: dict[str, Any]) -> dict[str, Any]:
    published = 0

    def count(event: Event) -> None:
        nonlocal published
        if isinstance(event, Published):
            published += len(event.messages)

    relay = Relay(
        order["dsn"], tables=order["tables"], dispatcher=_nothing, observers=[count], **order["settings"]
    )
    async with relay:
        began = time.process_time()
        print("ready", flush=True)
        await asyncio.wait_for(asyncio.to_thread(sys.stdin.read), _LONGEST_SECONDS)
        cpu = time.process_time() - began
    return {"published": published, "cpu": cpu}


def main() -> int:
    logging.basicConfig(level=logging.WARNING)
    with asyncio.Runner(loop_factory=event_loop()[0]) as runner:
        print(json.dumps(runner.run(serve(json.loads(sys.argv[1])))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
