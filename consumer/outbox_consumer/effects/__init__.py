"""External effects of a job: never forgotten, and sent once wherever the other side, a reconciler or a person can tell.

`methods` is what a handler calls, `course` the one way that a call takes, `deciding` what is done with what is on
record, `ledger` the database, `drivers` the two ways to run a course.
"""

from outbox_consumer.effects.errors import (
    EffectArgumentsChanged,
    EffectNotSent,
    EffectOnHold,
    EffectRefused,
    EffectResultUnstorable,
    SurelyNotDone,
)
from outbox_consumer.effects.values import NOT_DONE, EffectResult

__all__ = [
    "NOT_DONE",
    "EffectArgumentsChanged",
    "EffectNotSent",
    "EffectOnHold",
    "EffectRefused",
    "EffectResult",
    "EffectResultUnstorable",
    "SurelyNotDone",
]
