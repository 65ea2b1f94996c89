"""Finds what is wrong, or soon will be, between an application, its database and its broker, and says what to do.

    for finding in await diagnose():
        print(finding)

Nothing is changed: every check only reads, within a few seconds, and one that fails hides none of the others.
"""

from outbox_core.doctor.diagnosis import diagnose
from outbox_core.finding import Finding, Limits, Severity, worst

__all__ = ["Finding", "Limits", "Severity", "diagnose", "worst"]
