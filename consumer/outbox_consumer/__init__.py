"""The consuming side of outbox-relay: subclass `Handler` or `AsyncHandler`, and run a consumer."""

from outbox_consumer.errors import RetryableError, TerminalError, ThrottledError
from outbox_consumer.handler import AsyncHandler, Handler
from outbox_consumer.job import Job
from outbox_consumer.process import run_consumer
from outbox_consumer.retry import RetryPolicy
from outbox_schemas import HandlerError, LeaseLost

__all__ = [
    "AsyncHandler",
    "Handler",
    "HandlerError",
    "Job",
    "LeaseLost",
    "RetryPolicy",
    "RetryableError",
    "TerminalError",
    "ThrottledError",
    "run_consumer",
]
