"""Measure outbox-relay on this machine, alone or beside others, and write the figures into docs/.

python bench/run.py {ours,peers,horizon,scale} [--runs N] [--jobs N] [--only NAME,...] [--quick] [--docs FOLDER]
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from measure import page, plots, store, suites
from measure.arena import arena
from measure.compare import changes
from measure.figures import Figures
from measure.run import Options, Run
from measure.targets import evaluate, line, measured

_SUITES = {
    "ours": (suites.ours, 3),
    "peers": (suites.side_by_side, 5),
    "horizon": (suites.old_snapshot, 1),
    "scale": (suites.large_numbers, 3),
}


def main() -> int:
    """Run one suite; return 1 if a must is missed or a job of ours was lost or doubled, else 0."""
    # Otherwise the workers, which are in groups of their own, would outlive a run that is told to end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = _arguments()
    measure, usual_runs = _SUITES[chosen.suite]
    options = Options(
        quick=chosen.quick,
        runs=chosen.runs or (1 if chosen.quick else usual_runs),
        jobs=chosen.jobs,
        only=frozenset(filter(None, chosen.only.split(","))),
    )
    with arena(_say) as servers:
        run = Run(servers, options, _say)
        measure(run)
        entry = store.entry(run)
    before = store.load_committed()  # before the file is written: without git it is what there is
    docs = chosen.docs or (Path(tempfile.mkdtemp(prefix="outbox-bench-docs-")) if chosen.quick else store.DOCS)
    _write(docs, chosen.suite, entry)
    return _conclude(chosen.suite, run, store.figures_of(before, chosen.suite))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure outbox-relay on this machine.")
    parser.add_argument("suite", choices=_SUITES, nargs="?", default="ours")
    parser.add_argument("--runs", type=int, help="how many rounds; medians count")
    parser.add_argument("--jobs", type=int, help="how many jobs go through under a snapshot, or stand in a backlog")
    parser.add_argument("--only", default="", help="the peers to measure, by name, with commas between; default: all")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works; docs stay as they are")
    parser.add_argument("--docs", type=Path, help="where figures and page are written; default: docs/")
    return parser.parse_args()


def _write(docs: Path, suite: str, entry: dict[str, object]) -> None:
    kept = store.load(docs) | {suite: entry}
    written = [store.save(docs, kept)]
    try:
        written += plots.draw(docs / "figures", store.figures_of(kept, "peers"))
    except ImportError:
        _say("no pictures: matplotlib is not installed here (it comes with the peers)")
    written.append(page.write(docs, kept))
    _say("written: " + ", ".join(str(path) for path in written))


def _conclude(suite: str, run: Run, before: Figures) -> int:
    compared = changes(run.figures, before)
    if compared:
        _say("\nagainst the last committed figures of this machine shape:")
        for text in compared:
            _say(f"  {text}")
    # Side by side, a peer that could not be started is worth a line; alone, nobody expected it.
    verdicts = evaluate(run.figures) if suite in {"peers", "horizon"} else measured(evaluate(run.figures))
    _say("\nwhat is to be reached (median, and the extremes of the rounds):")
    for verdict in verdicts:
        _say(f"  {line(verdict)}")
    if count := sum(verdict.row.must is not None and verdict.spread is None for verdict in verdicts):
        _say(f"  {count} musts were not measured: neither met nor missed")
    for text in run.wrong:
        _say(f"  WRONG: {text}")
    return 1 if run.wrong or any(verdict.missed for verdict in verdicts) else 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
