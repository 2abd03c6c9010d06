"""What a crash can come between: each statement that writes, with the barriers around it, or why it needs none.

A transaction of several statements has a barrier in front of its commit; after a commit there is one wherever something
has to follow. A statement that nobody has listed here fails the tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from outbox.processes.barriers import Barrier

__all__ = ["BESIDE", "MOMENTS", "WRITES"]

_B = Barrier

_WRITER = (_B.WRITER_AFTER_INSERT, _B.WRITER_AFTER_COMMIT)
_CANCEL = (_B.CANCEL_AFTER_HOLD, _B.CANCEL_AFTER_END, _B.CANCEL_AFTER_COMMIT)
_REDRIVE = (_B.RELAY_BEFORE_REDRIVE, _B.RELAY_AFTER_REDRIVE)
_OPERATOR = (_B.OPERATOR_BEFORE_COMMIT, _B.OPERATOR_AFTER_COMMIT)
_PURGE = (_B.PURGE_BEFORE_COMMIT, _B.PURGE_AFTER_COMMIT)
_ROTATION = (_B.KEYS_BEFORE_COMMIT, _B.KEYS_AFTER_COMMIT)
_SCHEDULE = (_B.RELAY_BEFORE_SCHEDULE, _B.RELAY_AFTER_SCHEDULE)
_END = (_B.CONSUMER_AFTER_HANDLE, _B.CONSUMER_AFTER_COMMIT)

_CALLERS = "in the caller's transaction, whose commit is the caller's: all of it or nothing"
_OWED = "one statement: its hint is owed as before its release"
_AGAIN = "one statement for each piece: the next look finds what is left"
_TOLD = "one statement that tells something; no job's course depends on it"
_MENDED = "one statement of a repair that finds what is left when it is run again"

WRITES: Mapping[str, tuple[Barrier, ...] | str] = MappingProxyType(
    {
        "add_schedule": _CALLERS,
        "advance_redrive": (*_REDRIVE, *_OPERATOR),
        "advance_schedule": _SCHEDULE,
        "announce": _TOLD,
        "begin_rotation": (_B.KEYS_AFTER_BEGIN,),
        "bound_queue": _OPERATOR,
        "break_schedule": "one statement, after which the schedule has its turn later; without it, at once",
        "cancel": _CANCEL,
        "carry_tokens": _OPERATOR,
        "change_schedule": _CALLERS,
        "choose_redrive": _OPERATOR,
        "claim": (_B.CONSUMER_AFTER_CLAIM, _B.CONSUMER_AFTER_ACK, _B.CONSUMER_BEFORE_HANDLE),
        "close_joins": (_B.SETS_AFTER_LOOK, _B.SETS_AFTER_CLOSE),
        "complete": _END,
        "complete_one": (
            _B.CONSUMER_AFTER_HANDLE,
            _B.CONSUMER_AFTER_FENCE,
            _B.CONSUMER_AFTER_APPLY,
            _B.CONSUMER_AFTER_COMMIT,
        ),
        "depart": _TOLD,
        "discard": _OPERATOR,
        "effect_again": (_B.EFFECT_AFTER_RECONCILE, _B.EFFECT_BEFORE_AGAIN, _B.EFFECT_AFTER_PENDING),
        "effect_begin": (_B.EFFECT_BEFORE_PENDING, _B.EFFECT_AFTER_PENDING),
        "effect_confirm": (_B.EFFECT_AFTER_SEND, _B.EFFECT_AFTER_RECONCILE, _B.EFFECT_AFTER_CONFIRM),
        "effect_late": _TOLD,
        "effect_leave": (_B.EFFECT_BEFORE_LEAVE, _B.EFFECT_AFTER_LEAVE),
        "effect_resolve": _OPERATOR,
        "enqueue": _WRITER,
        "enqueue_keyed": _WRITER,
        "enqueue_new": _WRITER,
        "enqueue_new_keyed": _WRITER,
        "enqueue_one": _WRITER,
        "enqueue_subjects": _CALLERS,
        "erase_payloads": _PURGE,
        "expire_deadlines": (_B.RELAY_AFTER_EXPIRY,),
        "fail": _END,
        "fill_dead_letters": _AGAIN,
        "forget_tokens": "one statement, after which nothing follows; the next turn finds what it would have deleted",
        "free_keys": _AGAIN,
        "govern_queue": _OPERATOR,
        "heartbeat": (_B.CONSUMER_BEFORE_HEARTBEAT,),
        "forget_pauses": "one statement, after which nothing follows; the next walk finds what it would have deleted",
        "hold_gauges": _TOLD,
        "keep_figures": _TOLD,
        "keep_once": _CALLERS,
        "keep_walk": _PURGE,
        "leave_effects": "one statement before an attempt ends; without it effects are pending, which means as much",
        "mend_checkpoints_orphaned": _MENDED,
        "mend_clock_went_back": _MENDED,
        "mend_schedule_ahead": _MENDED,
        "mend_dead_letters": _MENDED,
        "mend_key_stuck": _MENDED,
        "mend_outbox_row": _MENDED,
        "mend_owe": _MENDED,
        "mend_owe_nothing": _MENDED,
        "note_rotation": _ROTATION,
        "once": _CALLERS,
        "open_job": _TOLD,
        "offer_again": "one statement that brings forward what would be offered by itself, and offers it once",
        "open_join": _CALLERS,
        "open_queue": _OPERATOR,
        "pace_redrive": _REDRIVE,
        "park": _END,
        "patch_redrive": _OPERATOR,
        "pause": _OPERATOR,
        "postpone_redrive": "one statement, after which the redrive has its turn later",
        "promote_canaries": _REDRIVE,
        "purge": _PURGE,
        "purge_inbox": _AGAIN,
        "purge_redrives": _AGAIN,
        "put_back": (_B.RELAY_AFTER_PAUSES,),
        "put_off_leases": "one statement: it says only when a lease is looked at",
        "record_refusals": _TOLD,
        "recover_hints": (_B.RELAY_AFTER_HINTS,),
        "recover_leases": (_B.RELAY_BEFORE_RECOVERY, _B.RELAY_AFTER_RECOVERY),
        "redrive": (*_REDRIVE, *_OPERATOR),
        "refuse": _OWED,
        "release": (_B.RELAY_AFTER_RELEASE, _B.CONSUMER_BROKERLESS_AFTER_RELEASE),
        "release_picked": (_B.LIMITS_BEFORE_COMMIT, _B.RELAY_AFTER_RELEASE, _B.CONSUMER_BROKERLESS_AFTER_RELEASE),
        "release_shares": (_B.LIMITS_BEFORE_COMMIT, _B.RELAY_AFTER_RELEASE, _B.CONSUMER_BROKERLESS_AFTER_RELEASE),
        "remove_schedule": _CALLERS,
        "replace": _CALLERS,
        "reseal": _ROTATION,
        "resume": _OPERATOR,
        "retry": _END,
        "save_checkpoint": (_B.STEP_BEFORE_COMMIT, _B.STEP_AFTER_COMMIT),
        "see_members": (_B.SETS_AFTER_LOOK,),
        "set_aside": (_B.RELAY_AFTER_PAUSES,),
        "set_rest_aside": _AGAIN,
        "set_limits_back": "one statement, after which nothing follows; the next turn finds what is left",
        "set_queue_limits": _OPERATOR,
        "set_tenant_limits": _OPERATOR,
        "settle_redrive": _REDRIVE,
        "spend_tokens": (_B.LIMITS_BEFORE_COMMIT, _B.RELAY_AFTER_RELEASE, _B.CONSUMER_BROKERLESS_AFTER_RELEASE),
        "steer_redrive": _OPERATOR,
        "steer_schedule": _CALLERS,
        "supersede": _CALLERS,
        "take_place": "takes a number; what is rolled back leaves a gap",
        "take_back": (*_OPERATOR, _B.RELAY_AFTER_PAUSES),
        "take_back_beyond": (*_OPERATOR, _B.RELAY_AFTER_LIMITS),
        "take_back_limited": (*_OPERATOR, _B.RELAY_AFTER_LIMITS),
        "unbound_queue": _OPERATOR,
        "unrelease": _OWED,
        "wake_relay": "writes nothing: only the trigger of an insert runs",
        "write_audit": (_B.CANCEL_BEFORE_BATCH, *_PURGE),
    }
)

# Moments beside what is written to the database.
BESIDE: frozenset[Barrier] = frozenset(
    {
        _B.RELAY_AFTER_PUBLISH,
        _B.RELAY_AFTER_CONFIRM,
        _B.CONSUMER_AFTER_RECEIVE,
        _B.CONSUMER_BEFORE_EXTERNAL_EFFECT,
        _B.CONSUMER_AFTER_EXTERNAL_EFFECT,
        _B.EFFECT_BEFORE_RECONCILE,
    }
)

# Moments in which a crash must converge, each with what the names of its cells begin with.
MOMENTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "after the submit commits": ("writer.after_commit kill", "writer.after_commit stop"),
        "after a release is marked, before it is published": ("relay.after_release kill", "relay.after_release stop"),
        "after the publish, before its confirm": ("relay.after_publish kill", "relay.after_publish stop"),
        "after the claim commits, before the hint's ack": ("consumer.after_claim kill", "consumer.after_claim stop"),
        "inside handle, before an external effect": ("consumer.before_external_effect kill",),
        "inside handle, after an external effect": ("consumer.after_external_effect kill",),
        "after an effect's remote success, before it is recorded": ("effect.after_send kill", "effect.after_send stop"),
        "inside apply": ("consumer.after_fence kill", "consumer.after_apply kill", "consumer.after_apply stop"),
        "after the completion commits": ("consumer.after_commit kill", "consumer.after_commit stop"),
        "relay in mid-redrive": ("relay.before_redrive kill", "relay.after_redrive stop"),
        "relay in mid-recovery": ("relay.before_recovery kill", "relay.after_recovery stop", "relay.after_hints kill"),
        "relay in mid-schedule": ("relay.before_schedule kill", "relay.after_schedule stop"),
        "broker restart": ("broker killed",),
        "broker losing everything": ("broker lost everything",),
        "database crash and restart": ("postgres crashed", "postgres crashed at consumer.after_apply"),
        "connection cut in mid-commit": ("commit's answer lost: apply", "commit's answer lost: writer"),
    }
)
