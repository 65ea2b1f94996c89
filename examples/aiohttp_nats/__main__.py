"""`python -m examples.aiohttp_nats` serves the application; with `--check` it tries itself out and ends."""

from __future__ import annotations

import argparse
import asyncio
import os

from aiohttp import web

from examples.aiohttp_nats.app import create_app
from examples.aiohttp_nats.check import check

parser = argparse.ArgumentParser(prog="python -m examples.aiohttp_nats", description=__doc__)
parser.add_argument("--check", action="store_true", help="sign up and see the event on NATS")

if parser.parse_args().check:
    asyncio.run(check())
else:
    port = int(os.environ.get("PORT", "8000"))
    web.run_app(create_app(), host="127.0.0.1", port=port, shutdown_timeout=5)
