"""The project's gates: the same sessions on a developer's machine and in CI (`.ci/run`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import nox

PYTHONS = ["3.11", "3.12", "3.13"]
POSTGRES_VERSIONS = ["14", "15", "16", "17", "18"]
PACKAGES = [
    "outbox_core",
    "outbox_adapters/kafka/outbox_kafka",
    "outbox_adapters/nats/outbox_nats",
    "outbox_adapters/amqp/outbox_amqp",
]
UV = "uv>=0.9,<1"
SIDE_BY_SIDE = ["--numprocesses=3", "--dist=worksteal"]
"""Most of a test of servers is waiting, so there are more at work than a small machine has cores; each worker has
servers of its own."""
RECORDS = Path(".nox")
"""Where `tests` leaves what became of each test, for `faults` to read."""
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
TESTS_FAILED = "Returned code 1"
"""What nox says of a pytest that ran all tests, some of which failed."""
ELSEWHERE = ["tests/examples", "tests/packaging"]
"""Tests that sessions of their own run."""

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["unit", "lint", "types"]


def find_pyenv_pythons() -> None:
    """Put pyenv's interpreters themselves on PATH.

    Its shims for versions that are not activated exist on PATH but fail when run, and would hide those interpreters.
    """
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders = [
        str(folder) for version in PYTHONS for folder in sorted((root / "versions").glob(f"{version}.*/bin"))
    ]
    os.environ["PATH"] = os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])


find_pyenv_pythons()
# uv trusts the certificates the machine trusts, as pip does: behind a company's proxy its own list would not do.
os.environ.setdefault("UV_SYSTEM_CERTS", "true")


def install_locked(session: nox.Session, *groups: str, extras: Sequence[str] | None = None) -> None:
    """Install the four packages (editable), every extra or those given, and the named dependency groups, exactly as
    uv.lock says."""
    session.install(UV)
    session.run(
        "uv",
        "sync",
        "--quiet",
        "--locked",
        "--inexact",  # keeps uv itself
        "--all-packages",
        *(["--all-extras"] if extras is None else [f"--extra={extra}" for extra in extras]),
        "--no-default-groups",
        *(f"--group={group}" for group in groups),
        env={
            "UV_PROJECT_ENVIRONMENT": session.virtualenv.location,
            "UV_PYTHON": str(Path(session.bin) / "python"),
            "UV_PYTHON_DOWNLOADS": "never",
        },
    )


@nox.session
def tests(session: nox.Session) -> None:
    """Every test, on real servers, but those with a session of their own; arguments after `--` go to pytest."""
    install_locked(session, "test")
    chosen = session.posargs or [f"--ignore={path}" for path in ELSEWHERE]
    for old in (*RECORDS.glob("tests-*.xml"), LAST_FAILED):
        old.unlink(missing_ok=True)

    def run(*arguments: str, record: str) -> None:
        session.run(
            "pytest", *arguments, "-o", "junit_family=xunit1", f"--junitxml={RECORDS / record}", *chosen
        )

    try:
        run(*SIDE_BY_SIDE, "--durations=25", record="tests-1.xml")
    except nox.command.CommandFailed as error:
        if error.reason != TESTS_FAILED:
            raise  # whatever it broke off at, there are tests that did not run
        # Deadlines are promised for a machine that is not overrun: what failed beside others has one more try, alone.
        session.log("what failed is run once more, by itself")
        run("--last-failed", "--last-failed-no-failures=none", record="tests-2.xml")


@nox.session(python=PYTHONS)
def unit(session: nox.Session) -> None:
    """The fast tests: no server, seconds, on every supported Python."""
    install_locked(session, "test")
    session.run("pytest", *SIDE_BY_SIDE, "tests/unit", *session.posargs)


@nox.session
def postgres(session: nox.Session) -> None:
    """The store tests on PostgreSQL 14-18, each started for real; `-- 16 17` picks versions."""
    install_locked(session, "test")
    failed = []
    for version in session.posargs or POSTGRES_VERSIONS:
        session.log(f"PostgreSQL {version}")
        try:
            session.run("pytest", *SIDE_BY_SIDE, "-m", "store", env={"OUTBOX_TEST_POSTGRES_VERSION": version})
        except nox.command.CommandFailed:
            failed.append(version)
    if failed:
        session.error(f"failed on PostgreSQL {', '.join(failed)}")


@nox.session
def faults(session: nox.Session) -> None:
    """Break everything once and count every message, a few minutes.

    `-- --long` takes an hour and reaches the counts of docs/explanation/faults.md; `-- --long 4` goes on for four.
    Where `tests` has just run, `-- --records .nox/tests-*.xml` takes the proofs of single rows from there.
    """
    install_locked(session, "test")
    session.run("python", "-m", "tests.faults", *session.posargs)


@nox.session
def mutations(session: nox.Session) -> None:
    """Break the product in known ways, one at a time: the tests must notice each; `-- --only NAME` picks."""
    install_locked(session, "test")
    session.run("python", "-m", "tests.mutations", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure everything against its yardsticks; `-- --quick`: five minutes, `-- --list`: how long each takes."""
    install_locked(session, "test", "bench")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session
def services(session: nox.Session) -> None:
    """Provision the servers the tests need, and print what is there and where it came from."""
    install_locked(session, "test")
    session.run("python", "-m", "tests.services", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Formatting, lint rules and the direction of imports between layers."""
    install_locked(session, "lint")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("lint-imports", "--no-cache")


@nox.session
def security(session: nox.Session) -> None:
    """Flaws in the packages' own code, and known vulnerabilities of what the lock file names."""
    install_locked(session, "test", "security")
    session.run("bandit", "--quiet", "--configfile", "pyproject.toml", "--recursive", *PACKAGES)
    requirements = Path(session.create_tmp()) / "requirements.txt"
    session.run(
        "uv", "export", "--frozen", "--quiet", "--all-packages", "--all-extras", "--no-default-groups",
        "--no-emit-workspace", "--no-hashes", "--output-file", str(requirements), silent=True,
    )  # fmt: skip
    # 3: no database of vulnerabilities could be asked about all of them, which is no verdict.
    audit = ("python", "-m", "tests.security.audit", str(requirements))
    said = session.run(*audit, success_codes=[0, 3], silent=True)
    session.log(str(said).strip())
    if "could be reached" in str(said).lower() or "not audited" in str(said):
        session.skip("bandit found nothing; nobody could be asked for known vulnerabilities of every package")


@nox.session
def types(session: nox.Session) -> None:
    """mypy and pyright, both strict, on the packages and on the typing tests."""
    install_locked(session, "test", "types", "dev")
    session.run("mypy", *PACKAGES, "tests/services", "tests/typing", "noxfile.py")
    session.run("pyright")


@nox.session
def demo(session: nox.Session) -> None:
    """Watch a relay die, a broker freeze and nothing get lost; arguments after `--` go to `outbox demo`."""
    install_locked(session, extras=["cli", "embedded", "nats"])
    session.run("outbox", "demo", *session.posargs)


@nox.session
def examples(session: nox.Session) -> None:
    """Every example, run for real as its reader would."""
    install_locked(session, "test")
    session.run("pytest", *SIDE_BY_SIDE, "tests/examples", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site into `site/`; a broken link or a warning is an error."""
    install_locked(session, "docs")
    session.run("sphinx-build", "-W", "--keep-going", "-q", "docs", *(session.posargs or ["site"]))


@nox.session
def packaging(session: nox.Session) -> None:
    """Build the 4 wheels and sdists, look inside, install each cleanly, run the unit tests on the wheels."""
    install_locked(session, "test")
    built = Path(session.create_tmp()) / "dist"
    session.run("uv", "build", "--quiet", "--all-packages", "--clear", "--out-dir", str(built))
    session.run("pytest", "tests/packaging", *session.posargs, env={"OUTBOX_TEST_DIST": str(built.resolve())})
