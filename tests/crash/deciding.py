"""A person's decision that is hit before or after its commit; whoever did not hear of it decides the same again."""

from __future__ import annotations

import signal
from collections.abc import Callable

from crash.doubts import Held
from crash.processes import Armed, Process
from crash.stage import CellFailed, Stage
from outbox.processes.barriers import Barrier

_JOBS = 12

Decide = Callable[[Armed | None], Process]


def redrive_decided_at(stage: Stage, armed: Armed) -> None:
    """Hit the command that puts dead jobs back to work: each is put back once, however often it was decided."""
    ids = stage.dead(_JOBS)
    token = stage.preview(ids)
    told = ["dead", "redrive", *map(str, ids), "--acknowledge", token]
    _decide_twice(stage, armed, lambda arm: stage.decider("redriver", told, arm))
    stage.relay()
    stage.consumer()
    stage.redriven(_JOBS)


def effect_resolved_at(stage: Stage, armed: Armed) -> None:
    """Hit the command that settles a doubtful effect and puts its job back to work: the effect is not done again."""
    stage.relay()
    stage.consumer()
    [job_id] = stage.submit(1, [Held])
    stage.until(lambda: stage.database.count("jobs WHERE state = 'failed'"), "the job waits for a person")
    result = stage.folder / "result.json"
    result.write_text("null", encoding="utf-8")
    told = ["effects", "resolve", job_id, "mail", "--as", "confirmed", "--evidence", "its books", "--redrive"]
    told += ["--result-file", str(result)]
    _decide_twice(stage, armed, lambda arm: stage.decider("resolver", told, arm))
    stage.until(lambda: stage.database.count("jobs WHERE state = 'succeeded'"), "the settled job ran")
    if stage.database.count("audit WHERE action = 'effect.resolve'") != 1:
        raise CellFailed("the effect was settled twice, or never")


def _decide_twice(stage: Stage, armed: Armed, decide: Decide) -> None:
    victim = decide(armed)
    stage.held(victim)
    if armed.action == "stop":
        victim.signal(signal.SIGCONT)
        stage.until(lambda: victim.code is not None, "the woken decision ended")
    undecided = armed.action == "kill" and armed.barrier is Barrier.OPERATOR_BEFORE_COMMIT
    again = decide(None)
    stage.until(lambda: again.code is not None, "the second decision ended")
    if (again.code == 0) is not undecided:
        first = "has left nothing" if undecided else "stands"
        raise CellFailed(f"the first decision {first}, but the second one ended with {again.code}")
