from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

SETTINGS = """
[pytest]
asyncio_mode = strict
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""

RECORDER = """
import json

pytest_plugins = ["tests.services.hygiene"]
reports = {}

def pytest_runtest_logreport(report):
    if report.failed:
        name = report.nodeid.rpartition("::")[2]
        reports.setdefault(name, {})[report.when] = report.longreprtext

def pytest_sessionfinish(session):
    (session.config.rootpath / "reports.json").write_text(json.dumps(reports))
"""

SAMPLES = '''
import asyncio
import socket
import socketserver
import struct
import threading

import asyncpg
import pytest
import pytest_asyncio

kept = []


async def linger():
    await asyncio.Event().wait()


async def echo(reader, writer):
    writer.write(await reader.read())
    writer.close()


class Postgres(socketserver.StreamRequestHandler):
    """As much of a server as a client needs to connect. Off the loop, so none of it can leak there."""

    def handle(self):
        size = self.rfile.read(4)
        if not size:
            return
        self.rfile.read(struct.unpack("!i", size)[0] - 4)
        version = b"server_version\\x0017.0\\x00"
        self.wfile.write(b"R" + struct.pack("!ii", 8, 0))
        self.wfile.write(b"S" + struct.pack("!i", 4 + len(version)) + version)
        self.wfile.write(b"K" + struct.pack("!iii", 12, 1, 1) + b"Z" + struct.pack("!i", 5) + b"I")
        self.rfile.read(5)


async def connect(port):
    return await asyncpg.connect(f"postgresql://app:hunter2@127.0.0.1:{port}/app", ssl=False)


@pytest.fixture(scope="module")
def port():
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Postgres) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest_asyncio.fixture
async def worker():
    task = asyncio.create_task(linger())
    yield task
    task.cancel()


@pytest_asyncio.fixture
async def abandoned_worker():
    return asyncio.create_task(linger(), name="abandoned")


@pytest.mark.asyncio
async def test_clean(port, worker):
    connection = await connect(port)
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0))
    await connection.close()


@pytest.mark.asyncio
async def test_cancelled_task_may_settle():
    kept.append(asyncio.create_task(linger()))
    await asyncio.sleep(0)
    kept[-1].cancel()


@pytest.mark.asyncio
async def test_leaked_task():
    kept.append(asyncio.create_task(linger(), name="forgotten"))


@pytest.mark.asyncio
@pytest.mark.parametrize("leaks", [True, False])
async def test_parameters(leaks):
    if leaks:
        kept.append(asyncio.create_task(linger()))


@pytest.mark.asyncio
async def test_task_leaked_by_fixture(abandoned_worker):
    pass


@pytest.mark.asyncio
async def test_leaked_asyncpg_connection(port):
    kept.append(await connect(port))


@pytest.mark.asyncio
async def test_leaked_asyncpg_pool(port):
    address = f"postgresql://app:hunter2@127.0.0.1:{port}/app"
    kept.append(await asyncpg.create_pool(address, ssl=False, min_size=2, max_size=2))


@pytest.mark.asyncio
async def test_leaked_stream(port):
    kept.append(await asyncio.open_connection("127.0.0.1", port))


@pytest.mark.asyncio
async def test_unclosed_server():
    await asyncio.start_server(echo, "127.0.0.1", 0)


@pytest.mark.asyncio
async def test_raw_socket_in_a_cycle():
    cycle = [socket.socket()]
    cycle.append(cycle)


def test_sync_test_has_no_loop(request):
    assert "leave_the_loop_clean" not in request.fixturenames
'''

Reports = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """What failed in a run of the samples: the text by test name and phase."""
    folder = tmp_path_factory.mktemp("samples")
    (folder / "pytest.ini").write_text(SETTINGS)
    (folder / "conftest.py").write_text(RECORDER)
    (folder / "test_samples.py").write_text(SAMPLES)
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:randomly",
            "-p",
            "no:cacheprovider",
            "test_samples.py",
        ],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    reports: Reports = json.loads((folder / "reports.json").read_text())
    return reports


def test_only_the_leaking_tests_fail_and_only_at_teardown(failures: Reports) -> None:
    assert {name: list(phases) for name, phases in failures.items()} == {
        "test_leaked_task": ["teardown"],
        "test_parameters[True]": ["teardown"],
        "test_task_leaked_by_fixture": ["teardown"],
        "test_leaked_asyncpg_connection": ["teardown"],
        "test_leaked_asyncpg_pool": ["teardown"],
        "test_leaked_stream": ["teardown"],
        "test_unclosed_server": ["teardown"],
        "test_raw_socket_in_a_cycle": ["teardown"],
    }


def test_a_task_is_named_with_its_coroutine_and_where_it_was_created(failures: Reports) -> None:
    text = failures["test_leaked_task"]["teardown"]
    assert "task 'forgotten' running linger" in text
    assert "created at" in text
    assert "in test_leaked_task" in text
    assert text.count("- ") == 1


def test_a_task_of_a_fixture_is_blamed_on_the_fixture(failures: Reports) -> None:
    text = failures["test_task_leaked_by_fixture"]["teardown"]
    assert "task 'abandoned' running linger" in text
    assert "in abandoned_worker" in text


def test_an_asyncpg_connection_is_named_by_address_without_its_password(failures: Reports) -> None:
    text = failures["test_leaked_asyncpg_connection"]["teardown"]
    assert "unclosed asyncpg connection to ('127.0.0.1', " in text
    assert "hunter2" not in text


def test_every_connection_of_a_pool_is_counted(failures: Reports) -> None:
    assert failures["test_leaked_asyncpg_pool"]["teardown"].count("unclosed asyncpg connection") == 2


@pytest.mark.parametrize("name", ["test_unclosed_server", "test_raw_socket_in_a_cycle"])
def test_what_only_the_collector_sees_is_blamed_on_its_test(failures: Reports, name: str) -> None:
    assert "ResourceWarning: unclosed <socket.socket" in failures[name]["teardown"]
