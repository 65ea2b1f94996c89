"""pgbench as the yardstick of batches."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path


def pgbench_rows(
    program: str, dsn: str, script: Path, seconds: int, *, one: Mapping[str, str], batch: int
) -> float:
    """Rows a second of one pgbench client that sends the same arrays with each prepared statement: batches of ``one``
    row, by the plurals of its columns."""
    digest = "\\\\x" + hashlib.sha256(b"").hexdigest()
    columns = {
        **one,
        "digests": digest,
        **dict.fromkeys(("bodies", "types", "parents", "states")),
    }
    variables = [f"--define={name}={_array(value, batch)}" for name, value in columns.items()]
    command = [
        program,
        "-n",
        "-M",
        "prepared",
        "-c",
        "1",
        "-T",
        str(seconds),
        "-f",
        str(script),
        *variables,
        dsn,
    ]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 60)
    found = re.search(r"tps = ([0-9.]+)", completed.stdout)
    if completed.returncode != 0 or found is None:
        raise RuntimeError(f"pgbench failed:\n{completed.stdout}{completed.stderr}")
    return float(found[1]) * batch


def _array(value: str | None, batch: int) -> str:
    if value is None:
        return "{" + ",".join(["NULL"] * batch) + "}"
    element = '"' + value.replace('"', '\\"') + '"'
    return "{" + ",".join([element] * batch) + "}"
