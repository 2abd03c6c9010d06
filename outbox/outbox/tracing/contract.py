"""Every span that outbox-relay makes: its name, kind, attributes and links, in one table. docs/telemetry.md is made
from it, and a test holds real spans to it.

No attribute holds a payload, an error's text, a tenant or a whole logical key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

__all__ = ["ATTRIBUTES", "MOST_LINKS", "SPANS", "About", "Attr", "SpanKind", "SpanTerms"]

MOST_LINKS = 32
"""A span has so many links at most: a batch may come from a thousand submissions."""


class Attr(StrEnum):
    """The attributes. Those that begin with `messaging` and `error` are OpenTelemetry's own."""

    SYSTEM = "messaging.system"
    OPERATION = "messaging.operation.name"
    OPERATION_TYPE = "messaging.operation.type"
    QUEUE = "messaging.destination.name"
    MESSAGE_ID = "messaging.message.id"
    MESSAGES = "messaging.batch.message_count"
    ERROR = "error.type"
    JOB_ID = "outbox.job.id"
    KIND = "outbox.job.kind"
    VERSION = "outbox.job.version"
    KEY_HASH = "outbox.job.key_hash"
    CREATED = "outbox.job.created"
    ATTEMPT_ID = "outbox.attempt.id"
    ATTEMPT = "outbox.attempt.number"
    REDRIVEN = "outbox.attempt.redriven"
    PHASE = "outbox.attempt.phase"
    OUTCOME = "outbox.attempt.outcome"
    EFFECTS = "outbox.attempt.effects"
    LEASE = "outbox.lease.id"
    WORKER_VERSION = "outbox.worker.version"
    HANDLER_VERSION = "outbox.handler.version"
    HINTS = "outbox.hints"
    HINT_OUTCOME = "outbox.hint.outcome"
    CLAIMED = "outbox.claimed"
    EFFECT = "outbox.effect.name"
    EFFECT_STEP = "outbox.effect.step"
    EFFECT_STATE = "outbox.effect.state"


@dataclass(frozen=True, slots=True)
class About:
    """What an attribute says. `values`: how many it can have, in words."""

    text: str
    values: str


class SpanKind(StrEnum):
    """OpenTelemetry's kinds of spans, as far as they are used."""

    INTERNAL = "internal"
    PRODUCER = "producer"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class SpanTerms:
    """One kind of span. Its name is `name`, followed by a queue or a kind of job where `of` says so.

    Attributes:
        parent: what it stands under.
        links: what it is linked to.
        always: the attributes that each has; `sometimes`: those that it may have besides.
    """

    name: str
    of: str
    kind: SpanKind
    by: str
    about: str
    parent: str
    links: str
    always: tuple[Attr, ...]
    sometimes: tuple[Attr, ...] = ()

    def called(self, of: str) -> str:
        """Return a span's name."""
        return f"{self.name} {of}" if self.of else self.name


ATTRIBUTES: Mapping[Attr, About] = MappingProxyType(
    {
        Attr.SYSTEM: About("`outbox` where it is about jobs, `rabbitmq` where messages are sent or received", "2"),
        Attr.OPERATION: About("`submit`, `publish`, `receive`, `process`", "4"),
        Attr.OPERATION_TYPE: About("`create`, `send`, `receive`, `process`, as OpenTelemetry calls them", "4"),
        Attr.QUEUE: About("the queue", "as many as you have queues"),
        Attr.MESSAGE_ID: About("the broker message's id: of a process and a number", "one each message"),
        Attr.MESSAGES: About("how many jobs, or messages, it is about", "a number"),
        Attr.ERROR: About("the failure's code, or the error's class; never its text", "as many as your codes"),
        Attr.JOB_ID: About("the job's id", "one each job"),
        Attr.KIND: About("the kind of job", "as many as you have kinds"),
        Attr.VERSION: About("the version of its payload", "few"),
        Attr.KEY_HASH: About(
            "16 hexadecimal digits of a hash of tenant, kind and logical key: who knows these finds the job's spans by "
            "them. Who can guess a key can check the guess, so keep secrets out of keys",
            "one each job",
        ),
        Attr.CREATED: About("how many of the jobs were new", "a number"),
        Attr.ATTEMPT_ID: About("the job's id, `/` and the attempt's number", "one each attempt"),
        Attr.ATTEMPT: About("the attempt's number", "a number"),
        Attr.REDRIVEN: About("whether the job was redriven before this attempt", "2"),
        Attr.PHASE: About("how far the attempt has come: `claimed`, `started`, `applying`, `done`", "4"),
        Attr.OUTCOME: About(
            "`succeeded`, `retried`, `failed`, `handed_back`, `lost` (the lease), `let_go` (the process ended)", "6"
        ),
        Attr.EFFECTS: About("the names of the effects that it has called, 100 at most", "as your handlers name"),
        Attr.LEASE: About("the first eight digits of the lease token: enough to find the row", "one each attempt"),
        Attr.WORKER_VERSION: About("the release of outbox-relay that runs it", "few"),
        Attr.HANDLER_VERSION: About("the handler's `handler_version`", "few"),
        Attr.HINTS: About("how many hints, or jobs' ids, it is about", "a number"),
        Attr.HINT_OUTCOME: About("`confirmed`, `nacked`, `returned`, `cut_off`", "4"),
        Attr.CLAIMED: About("how many of them were claimed", "a number"),
        Attr.EFFECT: About("the effect's name", "as your handlers name"),
        Attr.EFFECT_STEP: About(
            "what was decided by what is on record: `send`, `again`, `return`, `reconcile`, `assume`, `hold`, "
            "`hold_expired`, `changed`, `unstored`, `lost`",
            "10",
        ),
        Attr.EFFECT_STATE: About("the effect's state afterwards: `confirmed`, `uncertain`, `not_done`, `pending`", "4"),
    }
)

_JOB = (Attr.JOB_ID, Attr.KIND)
_CONSUMER, _RELAY = "consumer", "relay"

SUBMIT = SpanTerms(
    "submit",
    "queue",
    SpanKind.PRODUCER,
    "whoever submits",
    "one call of `enqueue`, `enqueue_many` or `enqueue_async`, within your transaction. Made where your service has "
    "loaded OpenTelemetry; its context is stored with the job",
    "your span",
    "",
    (Attr.SYSTEM, Attr.OPERATION, Attr.OPERATION_TYPE, Attr.QUEUE, Attr.KIND, Attr.MESSAGES),
    (Attr.JOB_ID, Attr.VERSION, Attr.KEY_HASH, Attr.CREATED, Attr.ERROR),
)
RELEASE = SpanTerms(
    "release",
    "queue",
    SpanKind.INTERNAL,
    _RELAY,
    "one batch of hints, from the statement that marks them released until they are with the publisher",
    "none",
    "",
    (Attr.QUEUE, Attr.HINTS),
)
PUBLISH = SpanTerms(
    "publish",
    "queue",
    SpanKind.PRODUCER,
    _RELAY,
    "one broker message, from the publisher until its outcome is taken. Its context is the message's header "
    "`traceparent`",
    "`release`",
    "the submissions of its jobs",
    (Attr.SYSTEM, Attr.OPERATION, Attr.OPERATION_TYPE, Attr.QUEUE, Attr.MESSAGE_ID, Attr.MESSAGES),
    (Attr.HINT_OUTCOME, Attr.ERROR),
)
RECEIVE = SpanTerms(
    "receive",
    "queue",
    SpanKind.CONSUMER,
    _CONSUMER,
    "the messages of one claim, from the arrival of the first until the claim is decided",
    "none",
    "each `publish` that its messages name: nothing else is taken from a message",
    (Attr.SYSTEM, Attr.OPERATION, Attr.OPERATION_TYPE, Attr.QUEUE, Attr.MESSAGES),
)
CLAIM = SpanTerms(
    "claim",
    "queue",
    SpanKind.INTERNAL,
    _CONSUMER,
    "one statement that claims. Without `receive` the jobs were found without hints",
    "`receive`, or none",
    "",
    (Attr.QUEUE, Attr.HINTS, Attr.CLAIMED),
)
PROCESS = SpanTerms(
    "process",
    "kind",
    SpanKind.CONSUMER,
    _CONSUMER,
    "one attempt, from its claim until its end is written",
    "`submit`, for a job's first attempt within ten minutes of it; else none",
    "`claim`; `submit`, where that is not its parent: a retry or a redrive is no child of an old span",
    (
        Attr.SYSTEM,
        Attr.OPERATION,
        Attr.OPERATION_TYPE,
        Attr.QUEUE,
        *_JOB,
        Attr.VERSION,
        Attr.KEY_HASH,
        Attr.ATTEMPT_ID,
        Attr.ATTEMPT,
        Attr.REDRIVEN,
        Attr.LEASE,
        Attr.WORKER_VERSION,
        Attr.HANDLER_VERSION,
        Attr.PHASE,
        Attr.OUTCOME,
    ),
    (Attr.EFFECTS, Attr.ERROR),
)
HANDLE = SpanTerms(
    "handle",
    "kind",
    SpanKind.INTERNAL,
    _CONSUMER,
    "the handler's `handle`. Spans of your code stand under it, unless it runs in a process of its own",
    "`process`",
    "",
    _JOB,
    (Attr.ERROR,),
)
EFFECT = SpanTerms(
    "effect",
    "",
    SpanKind.INTERNAL,
    _CONSUMER,
    "one call of `job.effect`. Effects of a handler in a process of its own have none",
    "`handle`",
    "",
    (*_JOB, Attr.EFFECT),
    (Attr.EFFECT_STEP, Attr.EFFECT_STATE, Attr.ERROR),
)
SEND = SpanTerms(
    "effect send",
    "",
    SpanKind.INTERNAL,
    _CONSUMER,
    "the effect's `send`. Spans of your client library stand under it",
    "`effect`",
    "",
    (*_JOB, Attr.EFFECT),
    (Attr.ERROR,),
)
RECONCILE = SpanTerms(
    "effect reconcile",
    "",
    SpanKind.INTERNAL,
    _CONSUMER,
    "the effect's `reconcile`",
    "`effect`",
    "",
    (*_JOB, Attr.EFFECT),
    (Attr.ERROR,),
)
APPLY = SpanTerms(
    "apply",
    "kind",
    SpanKind.INTERNAL,
    _CONSUMER,
    "the transaction that completes a job with its handler's `apply`, all tries. Jobs submitted there carry its trace",
    "`process`",
    "",
    _JOB,
    (Attr.ERROR,),
)
COMPLETE = SpanTerms(
    "complete",
    "kind",
    SpanKind.INTERNAL,
    _CONSUMER,
    "the writing of an attempt's end without `apply`: success, retry, failure or handing back, from the decision until "
    "it is written",
    "`process`",
    "",
    _JOB,
    (Attr.OUTCOME,),
)

SPANS: tuple[SpanTerms, ...] = (
    SUBMIT,
    RELEASE,
    PUBLISH,
    RECEIVE,
    CLAIM,
    PROCESS,
    HANDLE,
    EFFECT,
    SEND,
    RECONCILE,
    APPLY,
    COMPLETE,
)
