"""The checker sees every way in which a cell can go wrong."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from crash.evidence import Evidence, Written, judge
from crash.workload import Applied, Charged, Plain, Stepped
from outbox_schemas.effect_keys import provider_key

_GOOD = Evidence(
    orders={"a": Applied.kind, "p": Plain.kind, "s": Stepped.kind},
    jobs=dict.fromkeys("aps", "succeeded"),
    won={"a": 1, "p": 2, "s": 3},
    effects=[Written("a", 1), Written("s", 3)],
    steps=[Written("s", 2)],
    external=[Written("a", 1), Written("p", 1), Written("p", 2), Written("s", 2), Written("s", 3)],
    uncommitted={"a", "p", "s", "gone"},
)


def test_nothing_is_found_where_all_is_well() -> None:
    """External effects may be there once for each attempt, a step may be an earlier attempt's."""
    verdict = judge(_GOOD)
    assert (verdict.lost, verdict.doubled, verdict.problems) == (0, 0, [])


def test_a_job_that_has_not_succeeded_is_lost() -> None:
    """Waiting, failed or missing: the intent was committed and nothing came of it."""
    for jobs in ({"a": "ready"}, {"a": "failed"}, {}):
        verdict = judge(replace(_GOOD, jobs={**_GOOD.jobs, **jobs} if jobs else {"p": "succeeded", "s": "succeeded"}))
        assert verdict.lost == 1


def test_a_success_without_its_effect_is_lost() -> None:
    """The state alone proves nothing."""
    assert judge(replace(_GOOD, effects=[Written("s", 3)])).lost == 1
    assert judge(replace(_GOOD, steps=[])).lost == 1
    assert judge(replace(_GOOD, external=[one for one in _GOOD.external if one.job != "p"])).lost == 1


def test_a_second_effect_is_doubled() -> None:
    """So is a second step; the external effect is not."""
    assert judge(replace(_GOOD, effects=[*_GOOD.effects, Written("a", 1)])).doubled == 1
    assert judge(replace(_GOOD, steps=[*_GOOD.steps, Written("s", 3)])).doubled == 1


def test_what_the_provider_did_not_do_or_did_twice_is_found() -> None:
    """Its own books count: a success without its charge is lost, a second charge is doubled."""
    job = "0190a3b5-1111-7222-8333-444455556666"
    charge = str(provider_key(UUID(job), "charge"))
    good = replace(
        _GOOD,
        orders={**_GOOD.orders, job: Charged.kind},
        jobs={**_GOOD.jobs, job: "succeeded"},
        won={**_GOOD.won, job: 1},
        effects=[*_GOOD.effects, Written(job, 1)],
        external=[*_GOOD.external, Written(job, 1)],
        provided=[charge],
    )
    assert judge(good).problems == []
    assert judge(replace(good, provided=[])).lost == 1
    assert judge(replace(good, provided=[charge, charge])).doubled == 1


def test_an_effect_of_another_attempt_than_the_winner_is_found() -> None:
    """One effect is one too many if a stale attempt had it."""
    verdict = judge(replace(_GOOD, won={**_GOOD.won, "a": 2}))
    assert verdict.problems == ["the effect of job a is by attempt 1, but attempt 2 succeeded"]
    assert judge(replace(_GOOD, steps=[Written("s", 4)])).problems != []


def test_whatever_is_done_for_an_uncommitted_job_is_found() -> None:
    """A rolled-back submission leaves nothing, and nothing runs for it."""
    for change in (
        {"effects": [*_GOOD.effects, Written("gone", 1)]},
        {"external": [*_GOOD.external, Written("gone", 1)]},
        {"jobs": {**_GOOD.jobs, "gone": "succeeded"}},
    ):
        assert judge(replace(_GOOD, **change)).problems != []


def test_a_broken_invariant_fails_the_cell() -> None:
    """What the rows show by themselves is passed on."""
    assert judge(replace(_GOOD, invariants=["7: something is owed"])).problems == ["7: something is owed"]


def test_only_what_was_to_be_cancelled_or_to_expire_may_be() -> None:
    """Such an end is a loss unless just that was meant, and then no effect may have been committed."""
    cancelled = {**_GOOD.jobs, "p": "cancelled"}
    assert judge(replace(_GOOD, jobs=cancelled)).lost == 1
    assert judge(replace(_GOOD, jobs=cancelled, doomed={"p"})).problems == []
    failed = {**_GOOD.jobs, "p": "failed"}
    assert judge(replace(_GOOD, jobs=failed, doomed={"p"})).lost == 1
    assert judge(replace(_GOOD, jobs=failed, expired={"p"})).problems == []
    assert judge(replace(_GOOD, jobs=cancelled, expired={"p"})).lost == 1
    applied = replace(_GOOD, jobs={**_GOOD.jobs, "a": "cancelled"}, won={"p": 2, "s": 3}, doomed={"a"})
    assert judge(applied).problems == ["the effect of job a is by attempt 1, but attempt None succeeded"]
