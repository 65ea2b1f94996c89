"""A test without its server is skipped with one line of advice, or fails when every server is required."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parents[3]
_TEST = "tests/integration/services/test_servers.py::test_kafka_topics_are_not_created_by_accident"


@pytest.mark.parametrize(("required", "code", "verdict"), [("", 0, "SKIPPED"), ("all", 1, "ERROR")])
def test_without_java_and_docker_kafka_is_missing(
    tmp_path: Path, required: str, code: int, verdict: str
) -> None:
    environment = {
        **os.environ,
        "PATH": str(tmp_path),
        "DOCKER_HOST": f"unix://{tmp_path}/no-engine",
        "OUTBOX_TEST_REQUIRE": required,
    }
    environment.pop("OUTBOX_TEST_KAFKA_URL", None)
    completed = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-ra", _TEST],
        cwd=_REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert completed.returncode == code, completed.stdout
    summary = [line for line in completed.stdout.splitlines() if line.startswith(verdict)]
    assert len(summary) == 1
    assert "no Kafka: run `apt-get install default-jre-headless maven`" in completed.stdout
    assert "set OUTBOX_TEST_KAFKA_URL (Maven: java is not installed)" in completed.stdout
