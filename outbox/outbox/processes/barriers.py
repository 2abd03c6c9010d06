"""Named points at which a test kills or stops a real process. Without the environment variable each is one falsy
check.

`OUTBOX_BARRIER=<name>=<kill|stop>[@<nth>]` arms one barrier of the process: at its nth passage (default 1) the
process ends itself with SIGKILL, as if the machine had lost power there, or stops itself with SIGSTOP until somebody
continues it. `OUTBOX_BARRIER_MARK=<file>` names a file that is created just before, so that a test knows that the
point was reached.
"""

from __future__ import annotations

import os
import signal
import threading
from enum import StrEnum
from pathlib import Path

__all__ = ["Barrier", "hit"]


class Barrier(StrEnum):
    """Every window in which a crash must converge. A test is parametrised over this enum."""

    WRITER_AFTER_INSERT = "writer.after_insert"
    WRITER_AFTER_COMMIT = "writer.after_commit"
    RELAY_AFTER_RELEASE = "relay.after_release"
    RELAY_AFTER_PUBLISH = "relay.after_publish"
    RELAY_AFTER_CONFIRM = "relay.after_confirm"
    RELAY_BEFORE_RECOVERY = "relay.before_recovery"
    RELAY_AFTER_RECOVERY = "relay.after_recovery"
    RELAY_AFTER_HINTS = "relay.after_hints"
    RELAY_AFTER_EXPIRY = "relay.after_expiry"
    RELAY_AFTER_PAUSES = "relay.after_pauses"
    RELAY_AFTER_LIMITS = "relay.after_limits"
    LIMITS_BEFORE_COMMIT = "limits.before_commit"
    SETS_AFTER_LOOK = "sets.after_look"
    SETS_AFTER_CLOSE = "sets.after_close"
    PURGE_BEFORE_COMMIT = "purge.before_commit"
    PURGE_AFTER_COMMIT = "purge.after_commit"
    RELAY_BEFORE_REDRIVE = "relay.before_redrive"
    RELAY_AFTER_REDRIVE = "relay.after_redrive"
    OPERATOR_BEFORE_COMMIT = "operator.before_commit"
    OPERATOR_AFTER_COMMIT = "operator.after_commit"
    RELAY_BEFORE_SCHEDULE = "relay.before_schedule"
    RELAY_AFTER_SCHEDULE = "relay.after_schedule"
    CONSUMER_AFTER_RECEIVE = "consumer.after_receive"
    CONSUMER_AFTER_CLAIM = "consumer.after_claim"
    CONSUMER_AFTER_ACK = "consumer.after_ack"
    CONSUMER_BEFORE_HANDLE = "consumer.before_handle"
    CONSUMER_BEFORE_EXTERNAL_EFFECT = "consumer.before_external_effect"
    CONSUMER_AFTER_EXTERNAL_EFFECT = "consumer.after_external_effect"
    EFFECT_BEFORE_PENDING = "effect.before_pending"
    EFFECT_BEFORE_RECONCILE = "effect.before_reconcile"
    EFFECT_AFTER_RECONCILE = "effect.after_reconcile"
    EFFECT_BEFORE_AGAIN = "effect.before_again"
    EFFECT_AFTER_PENDING = "effect.after_pending"
    EFFECT_AFTER_SEND = "effect.after_send"
    EFFECT_AFTER_CONFIRM = "effect.after_confirm"
    EFFECT_BEFORE_LEAVE = "effect.before_leave"
    EFFECT_AFTER_LEAVE = "effect.after_leave"
    STEP_BEFORE_COMMIT = "step.before_commit"
    STEP_AFTER_COMMIT = "step.after_commit"
    CONSUMER_AFTER_HANDLE = "consumer.after_handle"
    CONSUMER_AFTER_FENCE = "consumer.after_fence"
    CONSUMER_AFTER_APPLY = "consumer.after_apply"
    CONSUMER_AFTER_COMMIT = "consumer.after_commit"
    CONSUMER_BEFORE_HEARTBEAT = "consumer.before_heartbeat"
    CANCEL_BEFORE_BATCH = "cancel.before_batch"
    CANCEL_AFTER_HOLD = "cancel.after_hold"
    CANCEL_AFTER_END = "cancel.after_end"
    CANCEL_AFTER_COMMIT = "cancel.after_commit"
    CONSUMER_BROKERLESS_AFTER_RELEASE = "consumer.brokerless_after_release"
    KEYS_AFTER_BEGIN = "keys.after_begin"
    KEYS_BEFORE_COMMIT = "keys.before_commit"
    KEYS_AFTER_COMMIT = "keys.after_commit"


class _Armed:
    """The one armed barrier of this process, read from the environment at import."""

    def __init__(self, spec: str) -> None:
        name, _, action = spec.partition("=")
        action, _, nth = action.partition("@")
        self.barrier = Barrier(name)
        self.signal = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[action or "kill"]
        self.left = int(nth or 1)
        self.lock = threading.Lock()

    def pass_by(self) -> None:
        with self.lock:
            self.left -= 1
            due = self.left == 0
        if due:
            mark = os.environ.get("OUTBOX_BARRIER_MARK")
            if mark:
                Path(mark).write_text(f"{os.getpid()}\n", encoding="ascii")
            # To this very thread: a stop that goes to the process is taken by any thread, and this one would run on.
            signal.pthread_kill(threading.get_ident(), self.signal)


_SPEC = os.environ.get("OUTBOX_BARRIER")
_armed = _Armed(_SPEC) if _SPEC else None


def hit(barrier: Barrier) -> None:
    """Pass a barrier. Does nothing unless a test has armed it."""
    if _armed is not None and _armed.barrier is barrier:
        _armed.pass_by()
