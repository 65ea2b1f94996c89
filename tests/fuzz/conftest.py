"""The profile of a long search; an ordinary run takes the number of examples that Hypothesis has by default."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "fuzz-long",
    max_examples=3_000,
    deadline=None,
    derandomize=False,
    phases=tuple(Phase),
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
