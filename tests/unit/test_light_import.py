"""Importing the root package loads nothing optional."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
before = set(sys.modules)
import outbox_core
roots = {name.partition(".")[0] for name in set(sys.modules) - before}
foreign = roots - set(sys.stdlib_module_names)
# Not packages: what compiled modules, such as asyncpg's, put beside themselves.
print("\\n".join(sorted(name for name in foreign if "cython" not in name)))
"""

# What anyio and asyncpg bring with them.
ALLOWED = {"outbox_core", "anyio", "asyncpg", "idna", "sniffio", "typing_extensions", "async_timeout"}


def test_the_root_import_loads_only_the_standard_library_and_declared_dependencies() -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=30
    )
    loaded = set(run.stdout.split())
    assert "outbox_core" in loaded
    assert loaded <= ALLOWED


def test_the_schema_functions_that_errors_name_work_after_the_root_import() -> None:
    program = "import outbox_core; outbox_core.schema.script('orders_outbox')"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=30)
