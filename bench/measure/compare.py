"""This run's figures of ours beside the last committed ones of the same machine shape. Pure.

The machine's own pace stands beside them: where that has changed, absolute figures say little.
"""

from __future__ import annotations

from measure.figures import Figures
from measure.targets import MACHINE, OURS


def changes(now: Figures, before: Figures) -> list[str]:
    """Return a line for each figure of ours that both runs have."""
    lines = []
    for figure in now.rounds:
        whose = MACHINE if figure == "pace" else OURS
        new, old = now.spread(figure, whose), before.spread(figure, whose)
        if new is None or old is None or not old.median:
            continue
        change = (new.median / old.median - 1) * 100
        apart = new.low > old.high or new.high < old.low
        note = "" if apart else "  (within the spreads)"
        lines.append(f"{figure:<26} {old.median:>12,.6g} -> {new.median:>12,.6g}  {change:+6.1f} %{note}")
    return lines
