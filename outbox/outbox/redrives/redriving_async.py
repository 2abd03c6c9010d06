"""The async twins of looking at a redrive and beginning one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypedDict, Unpack
from uuid import UUID

from outbox.database.targets import AsyncTarget, awaitable, refusing_at_once
from outbox.operating.dead_letters import DeadFilter
from outbox.redrives.patching import Patch
from outbox.redrives.redriving import preview_redrive, redrive
from outbox.redrives.views import Redriven, RedrivePreview, StopOn
from outbox_schemas import Payload

__all__ = ["PreviewOptions", "RedriveOptions", "preview_redrive_async", "redrive_async"]


class PreviewOptions(TypedDict, total=False):
    """How jobs are chosen, as `preview_redrive` says."""

    where: DeadFilter | None
    deadline: datetime | None
    include_uncertain: bool


class RedriveOptions(PreviewOptions, total=False):
    """How they are put back, as `redrive` says."""

    acknowledge: str | None
    rate: float | None
    canary: int
    stop_on: StopOn | None
    patch: Patch | None
    payload_types: Sequence[type[Payload]]


@refusing_at_once
async def preview_redrive_async(
    target: AsyncTarget,
    job_ids: UUID | Iterable[UUID] | None = None,
    *,
    schema: str | None = None,
    **options: Unpack[PreviewOptions],
) -> RedrivePreview:
    """`preview_redrive` for an `AsyncSession` or `AsyncConnection`; the same errors."""
    return await awaitable(target, "preview_redrive_async").run_sync(
        lambda inner: preview_redrive(inner, job_ids, schema=schema, **options)
    )


@refusing_at_once
async def redrive_async(
    target: AsyncTarget,
    job_ids: UUID | Iterable[UUID] | None = None,
    *,
    by: str,
    reason: str,
    schema: str | None = None,
    **options: Unpack[RedriveOptions],
) -> Redriven:
    """`redrive` for an `AsyncSession` or `AsyncConnection`; the same promises and errors. A function given as `patch`
    is an ordinary one: it is called on the event loop's thread, and nobody awaits its answer.
    """
    return await awaitable(target, "redrive_async").run_sync(
        lambda inner: redrive(inner, job_ids, by=by, reason=reason, schema=schema, **options)
    )
