"""The consuming side of outbox-relay: subclass `Handler` or `AsyncHandler`, and run a consumer."""

from outbox_consumer.basis.errors import RetryableError, TerminalError, ThrottledError
from outbox_consumer.contract.handler import AsyncHandler, Handler
from outbox_consumer.contract.job import Job
from outbox_consumer.effects import NOT_DONE, EffectNotSent, EffectOnHold, EffectRefused, EffectResult, SurelyNotDone
from outbox_consumer.failing.known_errors import known_error
from outbox_consumer.failing.retry import RetryPolicy
from outbox_consumer.failing.retry_budget import RetryBudget
from outbox_consumer.process import run_consumer
from outbox_schemas import HandlerError, LeaseLost

__all__ = [
    "NOT_DONE",
    "AsyncHandler",
    "EffectNotSent",
    "EffectOnHold",
    "EffectRefused",
    "EffectResult",
    "Handler",
    "HandlerError",
    "Job",
    "LeaseLost",
    "RetryBudget",
    "RetryPolicy",
    "RetryableError",
    "SurelyNotDone",
    "TerminalError",
    "ThrottledError",
    "known_error",
    "run_consumer",
]
