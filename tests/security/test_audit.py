"""An audit that could not be made is not taken for a good one."""

from __future__ import annotations

import json

import pytest

from tests.security.audit import Audit, Verdict, unreported

GOOD = {"name": "anyio", "version": "4.9.0", "vulns": []}
BAD = {"name": "old", "version": "1.0", "vulns": [{"id": "PYSEC-1"}, {"id": "CVE-2"}]}
SKIPPED = {"name": "mirror", "skip_reason": "Dependency not found on PyPI and could not be audited"}


@pytest.mark.parametrize(
    ("packages", "verdict", "told"),
    [
        ([GOOD], Verdict.CLEAN, "1 packages have no known vulnerability"),
        ([GOOD, BAD, SKIPPED], Verdict.VULNERABLE, "vulnerable: old 1.0: PYSEC-1, CVE-2"),
        ([GOOD, SKIPPED], Verdict.NOT_AUDITED, "not audited, unknown to the database: mirror"),
        ([SKIPPED], Verdict.NOT_AUDITED, "NO VULNERABILITY DATABASE COULD BE REACHED"),
        ([], Verdict.NOT_AUDITED, "NO VULNERABILITY DATABASE COULD BE REACHED"),
    ],
)
def test_verdicts(packages: list[dict[str, object]], verdict: Verdict, told: str) -> None:
    audit = Audit.read(json.dumps({"dependencies": packages, "fixes": []}))

    assert audit.verdict is verdict
    assert told in str(audit)


def test_a_database_that_cannot_be_reached_is_no_failure_of_the_audit() -> None:
    """Behind a company's proxy, for example, whose certificate is not known here."""
    audit = unreported("Traceback\nrequests.exceptions.SSLError: HTTPSConnectionPool(host='somewhere')")
    assert audit is not None
    assert audit.verdict is Verdict.NOT_AUDITED
    assert "COULD BE REACHED" in str(audit)
    assert unreported("Traceback\nKeyError: 'dependencies'") is None
    assert unreported("") is None
