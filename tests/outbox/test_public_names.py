"""The names that services import; those of the contracts are pinned beside them."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

NAMES = {
    "outbox": """CancelFilter CancelPreview CancelRefused CancelReport CancelResult DeadFilter EffectNotFound
        EffectNotOpen EffectState EffectView Explanation InboxKeyConflict InvalidSubmission JobNotFound
        JobRef JobState BoundPolicy QueueBound QueueFull bound_queue bound_queue_async list_bounds list_bounds_async
        unbound_queue unbound_queue_async JobView
        LogicalKeyConflict NameRefused Occurrence Once OutboxError Payload PayloadError Pause
        PauseScope Paused KEEP Keep QueueLimits TenantLimits clear_queue clear_queue_async clear_tenant
        clear_tenant_async list_limits list_limits_async set_queue set_queue_async set_tenant set_tenant_async
        list_pauses list_pauses_async pause pause_async resume resume_async
        RedrivePreview RedriveRefused Redriven Schedule ScheduleNotFound ScheduleRefused ScheduleView
        SettingsError StateChanged StopOn SubmissionUnresolved Synced add_schedule cancel cancel_async
        cancel_many change_schedule enqueue enqueue_async enqueue_many explain fan_in fan_in_async find_job
        get_job get_job_async get_schedule list_schedules once once_async pause_schedule preview_cancel
        preview_redrive preview_redrive_async preview_schedule redrive redrive_async remove_schedule
        resolve_effect resume_schedule run_schedule_now run_schedule_now_async sync_schedules sync_schedules_async""",
    "outbox_consumer": """AsyncHandler EffectNotSent EffectOnHold EffectRefused EffectResult Handler HandlerError Job
        LeaseLost NOT_DONE RetryBudget RetryPolicy RetryableError SurelyNotDone TerminalError
        ThrottledError known_error run_consumer""",
    "outbox_relay": "run",
}


@pytest.mark.parametrize("package", NAMES)
def test_the_public_names(package: str) -> None:
    """Nothing is added to or taken from a package by accident, and every name is there."""
    module = importlib.import_module(package)
    assert sorted(module.__all__) == sorted(NAMES[package].split())
    assert all(hasattr(module, name) for name in module.__all__)


def test_a_writing_service_needs_no_broker_client() -> None:
    """Importing the writer loads neither pika nor a web framework, the server helpers or an ORM that nobody uses."""
    unwanted = ("pika", "fastapi", "rich", "outbox.servers", "sqlalchemy.orm", "sqlalchemy.ext.asyncio")
    code = f"import sys, outbox; print(*(m for m in {unwanted} if m in sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == ""


def test_a_package_s_own_modules_are_found_without_another_import() -> None:
    """`import outbox` is enough for `outbox.settings.load()`, and what isn't there is an ordinary error."""
    code = "import outbox, outbox_schemas; outbox.settings.load; outbox.logs; outbox_schemas.errors; outbox.nothing"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert found.stderr.splitlines()[-1] == "AttributeError: module 'outbox' has no attribute 'nothing'"
