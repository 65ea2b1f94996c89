"""What a run may say of a bar: no more than its rounds show."""

from __future__ import annotations

from enum import StrEnum

FEWEST_ROUNDS = 3
"""With fewer there is no spread to speak of, and a bar is neither met nor missed."""


class Verdict(StrEnum):
    """Of a figure and its bar. A spread that crosses the bar is told, whichever side the median is on."""

    NONE = ""
    MET = "met"
    MISSED = "missed"
    MET_WITHIN_SPREAD = "met, within spread"
    MISSED_WITHIN_SPREAD = "missed, within spread"
    UNCLEAR = "unclear: too few rounds"
    NOT_JUDGED = "not judged"
    NOT_MEASURED = "not measured"

    @property
    def shown(self) -> str:
        """As a table has it: what is not well is bold."""
        alarming = (Verdict.MISSED, Verdict.MISSED_WITHIN_SPREAD, Verdict.NOT_MEASURED)
        return f"**{self}**" if self in alarming else str(self)


def judge(value: float, lowest: float, highest: float, rounds: int, bar: tuple[float, bool]) -> Verdict:
    """``bar`` is a number and whether it is the least that will do; otherwise it is the most."""
    number, at_least = bar

    def good(measured: float) -> bool:
        return measured >= number if at_least else measured <= number

    if rounds < FEWEST_ROUNDS:
        return Verdict.UNCLEAR
    if good(lowest) and good(highest):
        return Verdict.MET
    if not good(lowest) and not good(highest):
        return Verdict.MISSED
    return Verdict.MET_WITHIN_SPREAD if good(value) else Verdict.MISSED_WITHIN_SPREAD
