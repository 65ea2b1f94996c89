"""Without a framework, its module says which command installs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Absent())
from outbox_core.errors import MissingExtra

try:
    import outbox_core.integrations.{module}
except MissingExtra as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("module", "absent", "extra"),
    [
        ("aiohttp", ["aiohttp"], "aiohttp"),
        ("fastapi", ["fastapi"], "fastapi"),
        ("fastapi", ["fastapi", "starlette"], "fastapi"),
        ("litestar", ["litestar"], "litestar"),
        ("starlette", ["starlette"], "fastapi"),
    ],
)
def test_the_command_is_named(module: str, absent: list[str], extra: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(absent=absent, module=module)],
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    )
    assert run.stdout == (
        f"outbox_core.integrations.{module} needs the package {absent[0]!r}, which is not installed."
        f" Install it with: pip install 'outbox-core[{extra}]'\n"
    )


def test_the_test_kit_for_fastapi_names_it_too() -> None:
    program = PROGRAM.format(absent=["fastapi"], module="x").replace(
        "outbox_core.integrations.x", "outbox_core.testing.fastapi"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=50
    )
    assert run.stdout.endswith("Install it with: pip install 'outbox-core[fastapi]'\n")


def test_what_is_shared_needs_no_framework() -> None:
    program = (
        "import sys, outbox_core.integrations.app_relays, outbox_core.integrations.bound;"
        "print({'aiohttp', 'fastapi', 'litestar', 'prometheus_client', 'sqlalchemy', 'starlette'} & set(sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=50
    )
    assert run.stdout == "set()\n"
