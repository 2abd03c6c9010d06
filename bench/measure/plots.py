"""The side-by-side figures as pictures, where matplotlib is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from measure.figures import Figures
from measure.tables import number
from measure.targets import OURS

_PICTURES = {
    "drain.png": ("Jobs drained per second", (("drain_1", "one worker process"), ("drain_2", "two"))),
    "enqueue.png": ("Transactions per second: one job, one business row", (("enqueue_one", "one connection"),)),
    "enqueue_many.png": ("Jobs per second in transactions of 1,000 with rows", (("enqueue_many", "one connection"),)),
    "latency.png": ("Milliseconds from commit to start", (("latency_p50", "median"), ("latency_p99", "99 %"))),
    "relay.png": ("Jobs relayed to a durable queue per second", (("relay", "relay alone"),)),
}


def draw(folder: Path, figures: Figures) -> list[Path]:
    """Write a picture for each group that was measured and return their paths; raises `ImportError` without
    matplotlib.
    """
    import matplotlib as mpl  # noqa: PLC0415 - it comes with the peers only

    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    return [
        _draw(folder / name, title, series, figures)
        for name, (title, series) in _PICTURES.items()
        if any(figures.contenders(figure) for figure, _ in series)
    ]


def _draw(path: Path, title: str, series: tuple[tuple[str, str], ...], figures: Figures) -> Path:
    from matplotlib import pyplot as plt  # noqa: PLC0415

    lead = series[0][0]
    names = sorted(figures.contenders(lead), key=lambda name: _median(figures, lead, name))
    picture, axes = plt.subplots(figsize=(8, 1 + 0.32 * len(names) * len(series)))
    height = 0.8 / len(series)
    for index, (figure, label) in enumerate(series):
        places = [place + (index - (len(series) - 1) / 2) * height for place in range(len(names))]
        colours = ["#b3541e" if name.startswith(OURS) else "#7a8ca3" for name in names]
        bars: Any = axes.barh(
            places,
            [_median(figures, figure, name) for name in names],
            height,
            xerr=_errors(figures, figure, names),
            color=colours,
            alpha=1 - 0.4 * index,
            label=label,
            error_kw={"elinewidth": 0.8},
        )
        axes.bar_label(bars, fmt=number, padding=6, fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_title(title + (": " + ", ".join(label for _, label in series) if len(series) > 1 else ""), fontsize=10)
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    picture.tight_layout()
    picture.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(picture)
    return path


def _median(figures: Figures, figure: str, name: str) -> float:
    spread = figures.spread(figure, name)
    return spread.median if spread else 0.0


def _errors(figures: Figures, figure: str, names: list[str]) -> list[list[float]]:
    spreads = [figures.spread(figure, name) for name in names]
    return [
        [spread.median - spread.low if spread else 0.0 for spread in spreads],
        [spread.high - spread.median if spread else 0.0 for spread in spreads],
    ]
