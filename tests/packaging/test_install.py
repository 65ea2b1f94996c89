"""Each distribution installs and imports by itself, and the unit tests pass on what was built."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.packaging.distributions import EXPECTED_ENTRY_POINTS, IMPORT_NAMES, Built, Environment

ADAPTERS = sorted(set(IMPORT_NAMES) - {"outbox-core"})

# anyio and asyncpg, and what these bring on some of the supported Pythons.
CORE_ALONE = {"outbox-core", "anyio", "asyncpg"}
BROUGHT_BY_THESE = {"idna", "sniffio", "typing-extensions", "async-timeout"}

LOADED = """
import json, sys
import {module}
print(json.dumps([{module}.__file__, sorted({{name.partition(".")[0] for name in sys.modules}})]))
"""

ENTRY_POINTS = """
import json
from importlib.metadata import distribution
declared = distribution("{name}").entry_points.select(group="outbox.dispatchers")
for entry in declared:
    entry.load()
print(json.dumps({{entry.name: entry.value for entry in declared}}))
"""

pytestmark = pytest.mark.timeout(600)


def test_core_alone_brings_only_its_two_dependencies(
    built: dict[str, Built], environment: Environment
) -> None:
    environment.install(built["outbox-core"].wheel)
    installed = environment.installed()
    assert installed >= CORE_ALONE
    assert installed - CORE_ALONE <= BROUGHT_BY_THESE

    path, modules = json.loads(environment.run("-W", "error", "-c", LOADED.format(module="outbox_core")))
    assert Path(path).is_relative_to(environment.python.parents[1])
    third_party = {name.replace("-", "_") for name in installed}
    allowed = set(
        json.loads(
            environment.run("-c", "import json, sys; print(json.dumps(list(sys.stdlib_module_names)))")
        )
    )
    assert {
        module for module in modules if not module.startswith("_") and "cython" not in module
    } <= allowed | third_party | {"__main__"}


def test_core_from_its_sdist(built: dict[str, Built], environment: Environment) -> None:
    environment.install(built["outbox-core"].sdist)
    environment.run("-W", "error", "-c", "import outbox_core")


def test_a_missing_extra_says_how_to_get_it(built: dict[str, Built], environment: Environment) -> None:
    environment.install(built["outbox-core"].wheel)
    program = (
        "from outbox_core.extras import needs_extra\n"
        "try:\n"
        "    with needs_extra('psycopg', feature='enqueue on a psycopg connection'):\n"
        "        import psycopg\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    assert "pip install 'outbox-core[psycopg]'" in environment.run("-c", program)


def test_the_command_without_its_extra_says_how_to_get_it(
    built: dict[str, Built], environment: Environment
) -> None:
    environment.install(built["outbox-core"].wheel)
    command = environment.python.with_name("outbox")
    done = subprocess.run([command, "--help"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (3, "")
    assert "pip install 'outbox-core[cli]'" in done.stderr


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_installs_imports_and_its_dispatchers_load(
    built: dict[str, Built], environment: Environment, name: str
) -> None:
    environment.install(built["outbox-core"].wheel, built[name].wheel)
    path, modules = json.loads(environment.run("-c", LOADED.format(module=IMPORT_NAMES[name])))
    assert Path(path).is_relative_to(environment.python.parents[1])
    assert "outbox_core" in modules
    assert json.loads(environment.run("-c", ENTRY_POINTS.format(name=name))) == EXPECTED_ENTRY_POINTS[name]


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_extra_of_core_brings_the_adapter(
    built: dict[str, Built], environment: Environment, name: str
) -> None:
    extra = name.removeprefix("outbox-")
    environment.install(f"outbox-core[{extra}] @ {built['outbox-core'].wheel.as_uri()}", built[name].wheel)
    assert {"outbox-core", name} <= environment.installed()
    other = set(ADAPTERS) - {name}
    assert not other & environment.installed()


def test_the_unit_tests_pass_on_the_built_wheels(
    built: dict[str, Built], environment: Environment, repository: Path
) -> None:
    locked = environment.folder.parent / "locked.txt"
    subprocess.run(
        [
            *("uv", "export", "--quiet", "--locked", "--all-packages", "--all-extras", "--no-default-groups"),
            *("--group=test", "--no-emit-workspace", "--output-file", str(locked)),
        ],
        cwd=repository,
        check=True,
        timeout=120,
    )
    environment.install("--requirements", locked)
    environment.install("--no-deps", *(one.wheel for one in built.values()))

    shutil.copy(repository / "pyproject.toml", environment.folder)
    shutil.copytree(
        repository / "tests", environment.folder / "tests", ignore=shutil.ignore_patterns("__pycache__")
    )
    for module in IMPORT_NAMES.values():
        path = environment.run("-c", f"import {module}; print({module}.__file__)").strip()
        assert Path(path).is_relative_to(environment.python.parents[1])

    side_by_side = ("--numprocesses=3", "--dist=worksteal")
    output = environment.run("-m", "pytest", "-q", *side_by_side, "-p", "no:cacheprovider", "tests/unit")
    assert " passed" in output.strip().splitlines()[-1]
