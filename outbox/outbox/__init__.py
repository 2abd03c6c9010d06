"""The writing side of outbox-relay: put a job into your own transaction, and look at it afterwards.

Every name here works inside the caller's transaction and returns plain views. The broker is not known in this
package.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outbox.explaining.explaining import explain
    from outbox.joins.joining import fan_in, fan_in_async
    from outbox.limits.bounding import (
        BoundPolicy,
        QueueBound,
        bound_queue,
        bound_queue_async,
        list_bounds,
        list_bounds_async,
        unbound_queue,
        unbound_queue_async,
    )
    from outbox.limits.setting import (
        clear_queue,
        clear_queue_async,
        clear_tenant,
        clear_tenant_async,
        list_limits,
        list_limits_async,
        set_queue,
        set_queue_async,
        set_tenant,
        set_tenant_async,
    )
    from outbox.limits.terms import KEEP, Keep, QueueLimits, TenantLimits
    from outbox.operating.bulk_cancelling import CancelFilter, CancelPreview, CancelReport, cancel_many, preview_cancel
    from outbox.operating.cancelling import cancel, cancel_async
    from outbox.operating.dead_letters import DeadFilter
    from outbox.operating.pausing import (
        Pause,
        Paused,
        PauseScope,
        list_pauses,
        list_pauses_async,
        pause,
        pause_async,
        resume,
        resume_async,
    )
    from outbox.operating.resolving import resolve_effect
    from outbox.reading.jobs import find_job, get_job, get_job_async
    from outbox.redrives.redriving import preview_redrive, redrive
    from outbox.redrives.redriving_async import preview_redrive_async, redrive_async
    from outbox.redrives.views import Redriven, RedrivePreview, StopOn
    from outbox.schedules.declaring import Schedule
    from outbox.schedules.looking import get_schedule, list_schedules, preview_schedule
    from outbox.schedules.operating import (
        add_schedule,
        change_schedule,
        pause_schedule,
        remove_schedule,
        resume_schedule,
        run_schedule_now,
        run_schedule_now_async,
    )
    from outbox.schedules.syncing import Synced, sync_schedules, sync_schedules_async
    from outbox.schedules.views import ScheduleView
    from outbox.submitting.inbox import Once, once, once_async
    from outbox.submitting.writer import enqueue, enqueue_async, enqueue_many
    from outbox_schemas import (
        CancelRefused,
        CancelResult,
        EffectNotFound,
        EffectNotOpen,
        EffectState,
        EffectView,
        Explanation,
        InboxKeyConflict,
        InvalidSubmission,
        JobNotFound,
        JobRef,
        JobState,
        JobView,
        LogicalKeyConflict,
        NameRefused,
        Occurrence,
        OutboxError,
        Payload,
        PayloadError,
        QueueFull,
        RedriveRefused,
        ScheduleNotFound,
        ScheduleRefused,
        SettingsError,
        StateChanged,
        SubmissionUnresolved,
    )
else:
    # Each is loaded when it is asked for, so that what needs few of them starts sooner. A test compares the two lists.
    from outbox_schemas.lazily import lazily

    __getattr__, __dir__ = lazily(
        __name__,
        {
            "outbox.explaining.explaining": "explain",
            "outbox.joins.joining": "fan_in fan_in_async",
            "outbox.limits.bounding": "BoundPolicy QueueBound bound_queue bound_queue_async list_bounds "
            "list_bounds_async unbound_queue unbound_queue_async",
            "outbox.limits.setting": "clear_queue clear_queue_async clear_tenant clear_tenant_async list_limits "
            "list_limits_async set_queue set_queue_async set_tenant set_tenant_async",
            "outbox.limits.terms": "KEEP Keep QueueLimits TenantLimits",
            "outbox.operating.bulk_cancelling": "CancelFilter CancelPreview CancelReport cancel_many preview_cancel",
            "outbox.operating.cancelling": "cancel cancel_async",
            "outbox.operating.dead_letters": "DeadFilter",
            "outbox.operating.pausing": "Pause Paused PauseScope list_pauses list_pauses_async pause pause_async "
            "resume resume_async",
            "outbox.operating.resolving": "resolve_effect",
            "outbox.reading.jobs": "find_job get_job get_job_async",
            "outbox.redrives.redriving": "preview_redrive redrive",
            "outbox.redrives.redriving_async": "preview_redrive_async redrive_async",
            "outbox.redrives.views": "Redriven RedrivePreview StopOn",
            "outbox.schedules.declaring": "Schedule",
            "outbox.schedules.looking": "get_schedule list_schedules preview_schedule",
            "outbox.schedules.operating": "add_schedule change_schedule pause_schedule remove_schedule "
            "resume_schedule run_schedule_now run_schedule_now_async",
            "outbox.schedules.syncing": "Synced sync_schedules sync_schedules_async",
            "outbox.schedules.views": "ScheduleView",
            "outbox.submitting.inbox": "Once once once_async",
            "outbox.submitting.writer": "enqueue enqueue_async enqueue_many",
            "outbox_schemas": "CancelRefused CancelResult EffectNotFound EffectNotOpen EffectState EffectView "
            "Explanation InboxKeyConflict InvalidSubmission JobNotFound JobRef JobState JobView "
            "LogicalKeyConflict NameRefused Occurrence OutboxError Payload PayloadError "
            "QueueFull RedriveRefused ScheduleNotFound ScheduleRefused SettingsError "
            "StateChanged SubmissionUnresolved",
        },
    )

__all__ = [
    "KEEP",
    "BoundPolicy",
    "CancelFilter",
    "CancelPreview",
    "CancelRefused",
    "CancelReport",
    "CancelResult",
    "DeadFilter",
    "EffectNotFound",
    "EffectNotOpen",
    "EffectState",
    "EffectView",
    "Explanation",
    "InboxKeyConflict",
    "InvalidSubmission",
    "JobNotFound",
    "JobRef",
    "JobState",
    "JobView",
    "Keep",
    "LogicalKeyConflict",
    "NameRefused",
    "Occurrence",
    "Once",
    "OutboxError",
    "Pause",
    "PauseScope",
    "Paused",
    "Payload",
    "PayloadError",
    "QueueBound",
    "QueueFull",
    "QueueLimits",
    "RedrivePreview",
    "RedriveRefused",
    "Redriven",
    "Schedule",
    "ScheduleNotFound",
    "ScheduleRefused",
    "ScheduleView",
    "SettingsError",
    "StateChanged",
    "StopOn",
    "SubmissionUnresolved",
    "Synced",
    "TenantLimits",
    "add_schedule",
    "bound_queue",
    "bound_queue_async",
    "cancel",
    "cancel_async",
    "cancel_many",
    "change_schedule",
    "clear_queue",
    "clear_queue_async",
    "clear_tenant",
    "clear_tenant_async",
    "enqueue",
    "enqueue_async",
    "enqueue_many",
    "explain",
    "fan_in",
    "fan_in_async",
    "find_job",
    "get_job",
    "get_job_async",
    "get_schedule",
    "list_bounds",
    "list_bounds_async",
    "list_limits",
    "list_limits_async",
    "list_pauses",
    "list_pauses_async",
    "list_schedules",
    "once",
    "once_async",
    "pause",
    "pause_async",
    "pause_schedule",
    "preview_cancel",
    "preview_redrive",
    "preview_redrive_async",
    "preview_schedule",
    "redrive",
    "redrive_async",
    "remove_schedule",
    "resolve_effect",
    "resume",
    "resume_async",
    "resume_schedule",
    "run_schedule_now",
    "run_schedule_now_async",
    "set_queue",
    "set_queue_async",
    "set_tenant",
    "set_tenant_async",
    "sync_schedules",
    "sync_schedules_async",
    "unbound_queue",
    "unbound_queue_async",
]
