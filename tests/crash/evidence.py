"""The checker. Everything that it believes stands in the database's rows and in the file of external effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from crash.doubts import Doubted, Held, Recharged
from crash.stage import DOOMED, EXPIRED, Stage
from crash.workload import Applied, Charged, Concurrent, Mailed, Noticed, Plain, Sealed, Stepped
from outbox_schemas.effect_keys import provider_key
from support.invariants import check_invariants

_APPLY = frozenset({Applied.kind, Sealed.kind, Stepped.kind, Concurrent.kind, Charged.kind, Recharged.kind})
# The name of the effect that each kind has at the provider.
_AT_PROVIDER = dict.fromkeys((Charged.kind, Recharged.kind), "charge") | dict.fromkeys(
    (Mailed.kind, Noticed.kind, Doubted.kind, Held.kind), "mail"
)
_KNOWN = _APPLY | {Plain.kind} | _AT_PROVIDER.keys()


@dataclass(frozen=True)
class Written:
    """An effect: the job, and the attempt that had it."""

    job: str
    attempt: int


@dataclass(frozen=True)
class Evidence:
    """What is there after a cell."""

    orders: Mapping[str, str]
    """The kind of each committed order, by its job."""
    jobs: Mapping[str, str]
    """The state of each job."""
    won: Mapping[str, int]
    """The number of each job's successful attempt."""
    effects: Collection[Written]
    """What `apply` wrote."""
    steps: Collection[Written]
    """What was written in mid-run, behind the fence."""
    external: Collection[Written]
    """What was done outside; once for each attempt that got so far."""
    uncommitted: Collection[str]
    """Jobs that some transaction has written, whether or not it was committed."""
    provided: Collection[str] = ()
    """The key of each thing that the provider did."""
    doomed: Collection[str] = ()
    """Jobs that were to be cancelled. What was done for one all the same shows as the work of a stale attempt."""
    expired: Collection[str] = ()
    """Jobs that were to fail by their deadline, without ever running."""
    invariants: Collection[str] = ()
    """Violations that the rows show by themselves."""


@dataclass
class Verdict:
    """What a cell comes to. Any problem fails it; `lost` and `doubled` count jobs."""

    lost: int = 0
    doubled: int = 0
    problems: list[str] = field(default_factory=list)


def judge(evidence: Evidence) -> Verdict:
    """Compare what was committed with what has come of it. Pure."""
    lost = _lost(evidence)
    doubled = {
        f"{what} of job {job} is there {times} times"
        for what, written in (("the effect", evidence.effects), ("the step", evidence.steps))
        for job, times in Counter(one.job for one in written).items()
        if times > 1
    }
    doubled |= {
        f"the provider's {name} for job {job} was done {times} times"
        for job, name, times in _at_provider(evidence)
        if times > 1
    }
    problems = [*lost, *doubled, *_stale(evidence), *_phantoms(evidence), *evidence.invariants]
    return Verdict(len({text.split()[1] for text in lost}), len(doubled), sorted(problems))


def _at_provider(evidence: Evidence) -> list[tuple[str, str, int]]:
    """Return, for each job with an effect at the provider, that effect's name and how often it was done."""
    done = Counter(evidence.provided)
    named = [(job, _AT_PROVIDER[kind]) for job, kind in evidence.orders.items() if kind in _AT_PROVIDER]
    return [(job, name, done[str(provider_key(UUID(job), name))]) for job, name in named]


def _lost(evidence: Evidence) -> list[str]:
    found = [
        f"job {job} succeeded without the provider's {name}"
        for job, name, times in _at_provider(evidence)
        if not times and evidence.jobs.get(job) == "succeeded"
    ]
    applied = {one.job for one in evidence.effects}
    stepped = {one.job for one in evidence.steps}
    outside = {one.job for one in evidence.external}
    for job, kind in evidence.orders.items():
        state = evidence.jobs.get(job)
        if (state == "cancelled" and job in evidence.doomed) or (state == "failed" and job in evidence.expired):
            continue
        if state != "succeeded":
            found.append(f"job {job} was committed and is {state or 'not there'}")
        elif kind not in _KNOWN:
            found.append(f"job {job} is of a kind that nobody checks: {kind}")
        elif kind in _APPLY and job not in applied:
            found.append(f"job {job} succeeded without its effect")
        elif kind == Stepped.kind and job not in stepped:
            found.append(f"job {job} succeeded without its step")
        elif job not in outside:
            found.append(f"job {job} succeeded without its external effect")
    return found


def _stale(evidence: Evidence) -> list[str]:
    """Name effects of attempts that did not own their job: only the one that won may write them."""
    found = [
        f"the effect of job {one.job} is by attempt {one.attempt}, but attempt {evidence.won.get(one.job)} succeeded"
        for one in evidence.effects
        if one.attempt != evidence.won.get(one.job)
    ]
    return found + [
        f"the step of job {one.job} is by attempt {one.attempt}, later than its success"
        for one in evidence.steps
        if one.attempt > evidence.won.get(one.job, 0)
    ]


def _phantoms(evidence: Evidence) -> list[str]:
    """Name what was done for jobs that were never committed."""
    found = [f"job {job} is there without its order" for job in evidence.jobs if job not in evidence.orders]
    for one in (*evidence.effects, *evidence.steps, *evidence.external):
        if one.job not in evidence.orders:
            known = "rolled back" if one.job in evidence.uncommitted else "unknown"
            found.append(f"something was done for job {one.job}, which is {known}")
    return found


def gather(stage: Stage) -> Evidence:
    """Read the rows and the file."""
    rows = stage.database.rows
    return Evidence(
        orders={str(job): kind for job, kind in rows("SELECT job_id, kind FROM public.crash_orders")},
        jobs={str(job): state for job, state in rows("SELECT id, state FROM {s}.jobs")},
        won={
            str(job): number
            for job, number in rows("SELECT job_id, number FROM {s}.attempts WHERE outcome = 'succeeded'")
        },
        effects=_written(rows("SELECT job_id, attempt FROM public.crash_effects")),
        steps=_written(rows("SELECT job_id, attempt FROM public.crash_steps")),
        external=_written(line.split()[:2] for line in stage.effects_file.read_text(encoding="ascii").splitlines()),
        doomed={str(job) for (job,) in rows("SELECT id FROM {s}.jobs WHERE tenant = %s", DOOMED)},
        expired={str(job) for (job,) in rows("SELECT id FROM {s}.jobs WHERE tenant = %s", EXPIRED)},
        uncommitted=set(stage.intents_file.read_text(encoding="ascii").split()),
        provided=[key for key, _ in stage.provider.books().done],
        invariants=check_invariants(stage.database),
    )


def _written(rows: object) -> list[Written]:
    return [Written(str(job), int(attempt)) for job, attempt in rows]  # type: ignore[attr-defined]
