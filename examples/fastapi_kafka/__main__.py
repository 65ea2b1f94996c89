"""`python -m examples.fastapi_kafka` serves the application; with `--check` it tries itself out and ends."""

from __future__ import annotations

import argparse
import asyncio
import os

import uvicorn

from examples.fastapi_kafka.app import app
from examples.fastapi_kafka.check import check

parser = argparse.ArgumentParser(prog="python -m examples.fastapi_kafka", description=__doc__)
parser.add_argument("--check", action="store_true", help="place orders and see their events on Kafka")

if parser.parse_args().check:
    asyncio.run(check())
else:
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")), timeout_graceful_shutdown=5)
