"""What ships: the package, its licence and nothing stray; metadata as promised."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.distributions import IMPORT_NAMES, Built

FOLDERS = {
    "outbox-core": ".",
    "outbox-kafka": "outbox_adapters/kafka",
    "outbox-nats": "outbox_adapters/nats",
    "outbox-amqp": "outbox_adapters/amqp",
}
SHIPPED_SUFFIXES = {".py", ".sql", ".typed"}
CORE_DEPENDENCIES = {"anyio", "asyncpg"}
ADAPTER_DEPENDENCIES = {
    "outbox-kafka": {"outbox-core", "aiokafka"},
    "outbox-nats": {"outbox-core", "nats-py"},
    "outbox-amqp": {"outbox-core", "aio-pika"},
}
EXTRAS = {
    *("kafka", "nats", "amqp", "sqlalchemy", "psycopg", "prometheus", "opentelemetry"),
    *("cli", "fastapi", "aiohttp", "litestar", "embedded", "all"),
}

every_distribution = pytest.mark.parametrize("name", sorted(IMPORT_NAMES))


def package_files(repository: Path, name: str) -> set[str]:
    """The files of the package in the repository, relative to the folder of its distribution."""
    root = repository / FOLDERS[name]
    return {
        path.relative_to(root).as_posix()
        for path in (root / IMPORT_NAMES[name]).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@every_distribution
def test_a_wheel_holds_the_package_and_nothing_else(
    built: dict[str, Built], repository: Path, name: str
) -> None:
    files = built[name].wheel_files
    information = {file for file in files if re.match(r"[^/]+\.dist-info/", file)}
    assert files - information == package_files(repository, name)
    assert {re.sub(r"^[^/]+/", "", file) for file in information} <= {
        *("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"),
    }


@every_distribution
def test_an_sdist_holds_the_package_and_what_builds_it(
    built: dict[str, Built], repository: Path, name: str
) -> None:
    expected = package_files(repository, name) | {
        "LICENSE",
        "PKG-INFO",
        "README.md",
        "pyproject.toml",
        ".gitignore",
    }
    if name == "outbox-core":
        expected |= {"CHANGELOG.md"}
    assert built[name].sdist_files - expected == set()
    assert expected - built[name].sdist_files <= {".gitignore"}


@every_distribution
def test_only_known_kinds_of_files_ship(built: dict[str, Built], name: str) -> None:
    package = {file for file in built[name].wheel_files if file.startswith(f"{IMPORT_NAMES[name]}/")}
    assert {Path(file).suffix or Path(file).name for file in package} <= SHIPPED_SUFFIXES
    assert f"{IMPORT_NAMES[name]}/py.typed" in package
    assert not [file for file in package if re.search(r"(^|/)(tests?|conftest)(/|\.|$)", file)]


def test_the_sql_texts_ship(built: dict[str, Built], repository: Path) -> None:
    in_repository = {file for file in package_files(repository, "outbox-core") if file.endswith(".sql")}
    assert in_repository
    assert in_repository <= built["outbox-core"].wheel_files


@every_distribution
def test_metadata(built: dict[str, Built], repository: Path, name: str) -> None:
    metadata = built[name].metadata
    assert metadata["Name"] == name
    assert metadata["Version"] == "0.1.0"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (repository / FOLDERS[name] / "README.md").read_text(encoding="utf-8")
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])


def unconditional(built: Built) -> set[str]:
    requirements = map(Requirement, built.metadata.get_all("Requires-Dist", []))
    return {requirement.name for requirement in requirements if "extra" not in str(requirement.marker or "")}


def test_core_depends_on_anyio_and_asyncpg_alone(built: dict[str, Built]) -> None:
    assert unconditional(built["outbox-core"]) == CORE_DEPENDENCIES


@pytest.mark.parametrize("name", sorted(ADAPTER_DEPENDENCIES))
def test_an_adapter_depends_on_core_and_its_client_alone(built: dict[str, Built], name: str) -> None:
    assert unconditional(built[name]) == ADAPTER_DEPENDENCIES[name]
    assert built[name].metadata.get_all("Provides-Extra", []) == []


def test_the_extras_are_those_documented(built: dict[str, Built]) -> None:
    assert set(built["outbox-core"].metadata.get_all("Provides-Extra", [])) == EXTRAS


def test_all_brings_every_extra_but_embedded(built: dict[str, Built]) -> None:
    requirements = [Requirement(text) for text in built["outbox-core"].metadata.get_all("Requires-Dist", [])]

    def brought_by(extra: str) -> set[str]:
        return {
            str(requirement).partition(";")[0].strip()
            for requirement in requirements
            if requirement.marker is not None
            and requirement.marker.evaluate({"extra": extra})
            and not requirement.marker.evaluate({"extra": ""})
        }

    every = set().union(*(brought_by(extra) for extra in EXTRAS - {"all", "embedded"}))
    assert every
    assert brought_by("embedded")
    assert brought_by("all") == every
    assert not every & brought_by("embedded")
