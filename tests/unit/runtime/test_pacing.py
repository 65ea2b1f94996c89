"""The pause after a check of everything: soon enough for what only that finds, and not all the time."""

from __future__ import annotations

import pytest

from outbox_core.runtime.pacing import Paced


@pytest.mark.parametrize(
    ("took", "pause"),
    [(0.0, 1.0), (0.008, 1.0), (0.03, 3.0), (0.1, 5.0), (0.25, 5.0), (0.5, 10.0), (1.0, 15.0), (300.0, 15.0)],
)
def test_the_pause_after_a_rescan_is_in_proportion_to_it_and_bounded(took: float, pause: float) -> None:
    """A process that stood still during one must not take that for its cost."""
    pace = Paced()
    pace.ended(1000.0, 1000.0 + took)
    assert pace.at - (1000.0 + took) == pytest.approx(pause)
