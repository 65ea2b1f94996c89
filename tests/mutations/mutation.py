"""One way to break the product."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class DoesNotApply(Exception):
    """Raised when the text that a mutation replaces is not there exactly once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """``old`` stands once in ``file``; with ``new`` in its place each of ``tests`` fails, and relays still deliver."""

    name: str
    breaks: str
    """What is wrong then, as a sentence of the documentation."""
    promise: str
    """What is promised and does not hold any more."""
    file: str
    """Path from the root of the repository."""
    old: str
    new: str
    tests: tuple[str, ...]
    """Ids of tests as pytest writes them; without the part in brackets: any of its parameters."""

    def applied_to(self, text: str) -> str:
        """The text of the file, broken. Raises `DoesNotApply`."""
        times = text.count(self.old)
        if times != 1:
            raise DoesNotApply(
                f"{self.name}: the text to replace is {times} times in {self.file} instead of once;"
                f" bring the mutation up to date with it:\n{self.old}"
            )
        return text.replace(self.old, self.new)

    def checked_in(self, root: Path) -> str:
        """The broken text of the file below ``root``. Raises `DoesNotApply`."""
        path = root / self.file
        if not path.is_file():
            raise DoesNotApply(f"{self.name}: there is no {self.file}")
        return self.applied_to(path.read_text(encoding="utf-8"))


def belongs(ran: str, named: str) -> bool:
    """Whether a test that ran is the one that was named, or one of its parameters, or in what was named."""
    return ran == named or ran.startswith((f"{named}[", f"{named}::"))
