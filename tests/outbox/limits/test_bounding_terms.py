"""Bounds of queues as people set them: audited, replaced, refused; and what their error says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from outbox import (
    BoundPolicy,
    NameRefused,
    QueueFull,
    bound_queue,
    list_bounds,
    unbound_queue,
)
from support.bounds import WHO
from support.database import Database

pytestmark = pytest.mark.usefixtures("sound")


def test_bounds_are_audited_and_replaced(database: Database, session: Session) -> None:
    """Who and why stand in the audit with the terms; one bound per queue and tenant."""
    first = bound_queue(session, "notes", max_backlog=10, **WHO)
    second = bound_queue(session, "notes", max_age=timedelta(minutes=5), policy=BoundPolicy.SHED, keeps=3, **WHO)
    bound_queue(session, "notes", tenant="acme", max_backlog=1, **WHO)
    assert [one.tenant for one in list_bounds(session)] == [None, "acme"]
    assert list_bounds(session)[0] == second != first
    assert unbound_queue(session, "notes", **WHO) == second
    assert unbound_queue(session, "notes", **WHO) is None
    session.commit()
    audit = database.rows("SELECT action, subject, actor, reason, detail ->> 'policy' FROM {s}.audit ORDER BY id")
    assert audit == [
        ("queue.bound", "queue notes", "ada", "the bank is slow", "refuse"),
        ("queue.bound", "queue notes", "ada", "the bank is slow", "shed"),
        ("queue.bound", "queue notes", "ada", "the bank is slow", "refuse"),
        ("queue.unbound", "queue notes", "ada", "the bank is slow", None),
    ]


@pytest.mark.parametrize(
    ("terms", "field"),
    [
        ({}, "max_backlog"),
        ({"max_backlog": 0}, "max_backlog"),
        ({"max_backlog": 100_001}, "max_backlog"),
        ({"max_backlog": True}, "max_backlog"),
        ({"max_backlog": "10"}, "max_backlog"),
        ({"max_age": timedelta(0)}, "max_age"),
        ({"max_age": 30}, "max_age"),
        ({"max_age": timedelta(days=31)}, "max_age"),
        ({"max_backlog": 1, "policy": "drop"}, "policy"),
        ({"max_backlog": 1, "policy": "shed", "keeps": 101}, "keeps"),
        ({"max_backlog": 1, "keeps": 5}, "keeps"),
        ({"max_backlog": 1, "policy": "defer", "keeps": -5}, "keeps"),
        ({"max_backlog": 1, "longest": timedelta(minutes=5)}, "longest"),
        ({"max_backlog": 1, "policy": "shed", "longest": timedelta(minutes=5)}, "longest"),
        ({"max_backlog": 1, "longest": timedelta(seconds=0.5)}, "longest"),
        ({"max_backlog": 1, "tenant": ""}, "tenant"),
        ({"max_backlog": 1, "reason": ""}, "reason"),
    ],
)
def test_terms_out_of_bounds_are_refused(session: Session, terms: dict[str, Any], field: str) -> None:
    """Each by name, before any SQL."""
    with pytest.raises(NameRefused) as caught:
        bound_queue(session, "notes", **(WHO | terms))
    assert caught.value.field == field
    assert not session.in_transaction()


@given(st.text("abcdefgh'\"{}[]", min_size=1, max_size=10), st.none() | st.floats(0, 1e6), st.floats(0, 1e6))
def test_the_error_says_what_is_known(tenant: str, drain_s: float | None, age_s: float) -> None:
    """Whatever the figures, one line with queue, tenant and limit."""
    error = QueueFull(
        queue="q", tenant=tenant, measure="backlog", figure=7, limit=5, policy="refuse", age_s=age_s, drain_s=drain_s
    )
    assert repr(tenant) in str(error)
    assert "limit 5" in str(error)
    assert "\n" not in str(error)
    assert ("nothing of it ends" in str(error)) == (drain_s is None)
