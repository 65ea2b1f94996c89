"""Where a server comes from: the order of the sources, and what happens when there is none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Source(StrEnum):
    """In the order in which they are asked."""

    ENVIRONMENT = "environment"
    WHEEL = "wheel"
    BINARY = "binary"
    MAVEN = "Maven"
    DOCKER = "Docker"


_ORDER = list(Source)


@dataclass(frozen=True, slots=True)
class Installation:
    """Programs this run can start itself. What `folder` holds is between a source and its server."""

    source: Source
    folder: Path


@dataclass(frozen=True, slots=True)
class Foreign:
    """A server somebody else runs: it has an address and no process of ours. `close` gives it back."""

    source: Source
    address: str
    close: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One place to look. `look` returns None when the place does not apply here.

    It raises `Unavailable` when the place applies and yet does not deliver.
    """

    source: Source
    look: Callable[[], Path | Foreign | None]


class Unavailable(Exception):
    """Raised when a source that applies here fails; the next one is asked, and the reason is kept."""


class Missing(Exception):
    """Raised when no source has the server. The message is one line that says how to get it."""

    def __init__(self, server: str, hint: str, failures: Iterable[str] = ()) -> None:
        reasons = "; ".join(failures)
        super().__init__(f"no {server}: {hint}" + (f" ({reasons})" if reasons else ""))


def choose(
    server: str, candidates: Iterable[Candidate], *, hint: str, private: bool = False
) -> Installation | Foreign:
    """The first source that delivers, in the order of `Source` whatever the order of `candidates`.

    A private server is one that a test may freeze and kill, so it never comes from the environment or a container.
    Raises `Missing` when nothing delivers.
    """
    failures: list[str] = []
    for candidate in sorted(candidates, key=lambda candidate: _ORDER.index(candidate.source)):
        if private and candidate.source in (Source.ENVIRONMENT, Source.DOCKER):
            continue
        try:
            found = candidate.look()
        except Unavailable as error:
            failures.append(" ".join(f"{candidate.source}: {error}".split()))
            continue
        if isinstance(found, Foreign):
            return found
        if found is not None:
            return Installation(candidate.source, found)
    raise Missing(server, hint, failures)


def environment(variable: str, environ: Mapping[str, str] = os.environ) -> Candidate:
    """An address the user gives in a variable."""

    def look() -> Foreign | None:
        address = environ.get(variable, "").strip()
        return Foreign(Source.ENVIRONMENT, address) if address else None

    return Candidate(Source.ENVIRONMENT, look)


def missing_is_failure(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a test without its server fails (`OUTBOX_TEST_REQUIRE=all`) instead of being skipped."""
    required = environ.get("OUTBOX_TEST_REQUIRE", "").strip()
    if required not in ("", "all"):
        raise ValueError(
            f"OUTBOX_TEST_REQUIRE={required!r} is not understood: leave it unset or set it to 'all'"
        )
    return required == "all"
