"""The ledger of delivery tags against a naive model: every delivery is told exactly once, and none too early."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outbox_consumer.broker.acks import AckLedger

steps = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.integers(1, 20)),
        st.tuples(st.just("decide"), st.lists(st.integers(0, 60), max_size=12)),
        st.tuples(st.just("forget"), st.integers(0, 60)),
    ),
    max_size=60,
)


@given(steps)
def test_ledger_against_a_naive_model(script: list[tuple[str, object]]) -> None:
    """The acknowledgements cover exactly the decided tags: no undecided one, none twice, and none is left."""
    ledger, out, next_tag = AckLedger(), set[int](), 1
    for action, value in script:
        if action == "deliver":
            assert isinstance(value, int)
            for tag in range(next_tag, next_tag + value):
                ledger.deliver(tag)
                out.add(tag)
            next_tag += value
        elif action == "forget":
            assert isinstance(value, int)
            assert ledger.forget(value) is (value in out)
            out.discard(value)
        else:
            assert isinstance(value, list)
            wanted = out & set(value)
            covered: set[int] = set()
            for tag, multiple in ledger.decide(value):
                told = {other for other in out - covered if other <= tag} if multiple else {tag}
                assert told <= wanted
                assert not told & covered
                covered |= told
            assert covered == wanted
            out -= wanted
        assert len(ledger) == len(out)


def test_a_whole_prefix_is_told_by_one_acknowledgement() -> None:
    """A thousand hints decided in order cost one frame."""
    ledger = AckLedger()
    for tag in range(1, 1001):
        ledger.deliver(tag)
    assert list(ledger.decide(range(1, 1001))) == [(1000, True)]
    assert list(ledger.decide([5])) == []
