"""Wall clocks that can be moved while their programs run; the monotonic clock stays as it is."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

_SOURCE = Path(__file__).with_name("clock.c")
_NANOSECONDS = 1_000_000_000


def shim(folder: Path) -> Path | None:
    """The library that does it, compiled here; None on a machine without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = folder / "clock.so"
    subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    library.chmod(0o755)
    return library


class Clock:
    """One program's clock. Without the library it stays at 0."""

    def __init__(self, library: Path | None, file: Path) -> None:
        self._library = library
        self._file = file
        self._write(0)
        file.chmod(0o644)

    @property
    def movable(self) -> bool:
        return self._library is not None

    @property
    def offset(self) -> float:
        """Seconds by which it differs from the machine's."""
        (nanoseconds,) = struct.unpack("q", self._file.read_bytes())
        return float(nanoseconds) / _NANOSECONDS

    @property
    def environment(self) -> Mapping[str, str]:
        """What a program is started with so that it goes by this clock."""
        if self._library is None:
            return dict(os.environ)
        return {**os.environ, "LD_PRELOAD": str(self._library), "FAULTS_CLOCK": str(self._file)}

    def move(self, seconds: float) -> None:
        self._write(round((self.offset + seconds) * _NANOSECONDS))

    def _write(self, nanoseconds: int) -> None:
        # In place: programs have the file mapped.
        mode = "r+b" if self._file.exists() else "wb"
        with self._file.open(mode) as file:
            file.write(struct.pack("q", nanoseconds))
