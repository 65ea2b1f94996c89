"""`python -m examples.litestar_rabbitmq` serves the application; with `--check` it tries itself out and ends."""

from __future__ import annotations

import argparse
import asyncio
import os

import uvicorn

from examples.litestar_rabbitmq.app import app
from examples.litestar_rabbitmq.check import check

parser = argparse.ArgumentParser(prog="python -m examples.litestar_rabbitmq", description=__doc__)
parser.add_argument("--check", action="store_true", help="pay and see the event in RabbitMQ")

if parser.parse_args().check:
    asyncio.run(check())
else:
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")), timeout_graceful_shutdown=5)
