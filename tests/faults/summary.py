"""What the runs came to, for machines: one object of JSON."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.faults import counts, matrix, report
from tests.faults.classify import FAILURES
from tests.faults.recovery import promised_seconds
from tests.faults.stops import LIMIT_SECONDS
from tests.faults.suites import Done
from tests.faults.trial import Result

_PACKAGES = ("outbox-core", "asyncpg", "aiokafka", "nats-py", "aio-pika")


def summary(
    results: Sequence[Result],
    done: Sequence[Done] = (),
    proofs: Sequence[matrix.Proof] = (),
    *,
    seed: int,
    seconds: float,
    good: bool,
    judged: bool = False,
) -> dict[str, Any]:
    """Everything. ``judged`` says whether the counts of the long form had to be reached."""
    verdicts = [result.verdict for result in results]
    by_kind = sum((result.by_kind for result in results), Counter[str]())
    reached, wanted = counts.reached(results, done), counts.wanted(done)
    stops = [stop.seconds for result in results for stop in result.stops]
    recoveries = _recoveries(results)
    return {
        "committed": sum(verdict.committed for verdict in verdicts),
        "delivered": sum(verdict.delivered for verdict in verdicts),
        "dead": sum(len(verdict.dead) for verdict in verdicts),
        "duplicates": sum(verdict.duplicates for verdict in verdicts),
        "duplicates_allowed": sum(verdict.duplicates_allowed for verdict in verdicts),
        "sent_again_unexplained": sum(len(verdict.unexplained) for verdict in verdicts),
        **{name: sum(len(getattr(verdict, name)) for verdict in verdicts) for name in FAILURES},
        "faults": by_kind.total(),
        "faults_not_felt": sum(not deed.hit for result in results for deed in result.deeds),
        "faults_by_kind": dict(sorted(by_kind.items())),
        "seed": seed,
        "kills": reached["kills"],
        "postgres_restarts": reached["postgres_restarts"],
        "broker_restarts": reached["broker_restarts"],
        "crash_points": counts.crash_points(results),
        "stops": len(stops),
        "slowest_stop_seconds": round(max(stops), 3) if stops else None,
        "stop_limit_seconds": LIMIT_SECONDS,
        "slowest_recovery_seconds": max(recoveries.values(), default=None),
        "slowest_recovery_by_kind": recoveries,
        "recovery_limit_seconds": {
            kind: round(promised_seconds(kind, result.plan.settings), 3)
            for result in results
            for kind in sorted(result.recoveries)
        },
        "per_hour": {
            f"{result.plan.broker} {name}": round(trend.per_hour, 2)
            for result in results
            for name, trend in result.trends.items()
        },
        "unknown": sum(len(verdict.unknown) for verdict in verdicts),
        "late_writes_refused": sum(result.late_writes_refused for result in results),
        "brokers": sorted({result.plan.broker for result in results}),
        "problems": [*(problem for result in results for problem in result.problems), *matrix.gaps(proofs)],
        "suites": {each.suite.name: "passed" if each.passed else "failed" for each in done},
        "counts": reached,
        "counts_wanted": wanted,
        "counts_short": counts.shortfalls(reached, wanted) if judged else [],
        "matrix_rows_proven": sum(proof.standing is matrix.Standing.SHOWN for proof in proofs),
        "matrix_rows_absent": matrix.absent_rows(proofs),
        "matrix_rows": len(proofs),
        "matrix": {str(proof.row.number): str(proof.standing) for proof in proofs},
        "second_try": matrix.second_try(proofs),
        "runs": [_run(result) for result in results],
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "versions": _versions(results),
        "seconds": round(seconds, 1),
        "good": good,
    }


def _recoveries(results: Sequence[Result]) -> dict[str, float]:
    """The most seconds that it took relays to work again, by kind."""
    kinds = sorted({kind for result in results for kind in result.recoveries})
    return {kind: round(max(result.recoveries.get(kind, 0.0) for result in results), 3) for kind in kinds}


def _run(result: Result) -> dict[str, Any]:
    return {
        "name": result.plan.name,
        "broker": result.plan.broker,
        "mode": result.plan.mode,
        "seconds": round(result.ended - result.began, 1),
        "good": result.good,
        "figures": report.figures(result),
        "faults_by_kind": dict(sorted(result.by_kind.items())),
        "problems": result.problems,
        "trends": {
            name: {
                "mean": round(trend.mean, 2),
                "grown": round(trend.grown, 3),
                "allowed": round(trend.allowed, 3),
            }
            for name, trend in result.trends.items()
        },
    }


def _versions(results: Sequence[Result]) -> dict[str, str]:
    servers = {name: version for result in results for name, version in result.versions.items()}
    packages = {package: importlib.metadata.version(package) for package in _PACKAGES}
    return {"Python": platform.python_version(), **servers, **packages}
