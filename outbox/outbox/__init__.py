"""The writing side of outbox-relay: put a job into your own transaction, and look at it afterwards.

Every name here works inside the caller's transaction and returns plain views. The broker is not known in this
package.
"""

from outbox.bulk_cancelling import CancelFilter, CancelPreview, CancelReport, cancel_many, preview_cancel
from outbox.cancelling import cancel, cancel_async
from outbox.dead_letters import DeadFilter
from outbox.explaining import explain
from outbox.inbox import Once, once, once_async
from outbox.joining import fan_in, fan_in_async
from outbox.pausing import (
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
from outbox.reading import find_job, get_job, get_job_async
from outbox.redrive_views import Redriven, RedrivePreview, StopOn
from outbox.redriving import preview_redrive, redrive
from outbox.redriving_async import preview_redrive_async, redrive_async
from outbox.resolving import resolve_effect
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
from outbox.writer import enqueue, enqueue_async, enqueue_many
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
    RedriveRefused,
    ScheduleNotFound,
    ScheduleRefused,
    SettingsError,
    StateChanged,
    SubmissionUnresolved,
)

__all__ = [
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
    "add_schedule",
    "cancel",
    "cancel_async",
    "cancel_many",
    "change_schedule",
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
    "sync_schedules",
    "sync_schedules_async",
]
