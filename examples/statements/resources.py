"""What the API takes and gives."""

from datetime import datetime
from typing import Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, field_validator

from outbox_schemas import JobView
from statements.models import Statement, StatementArtifact
from statements.payloads import AccountId, FormatVersion, Period
from statements.renderer import FORMAT_VERSIONS


class StatementRequest(BaseModel):
    """Body of POST /statements."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    account_id: AccountId = Field(examples=["acct_91"])
    period: Period = Field(examples=["2026-05"])
    format_version: FormatVersion = Field(examples=[2])

    @field_validator("format_version")
    @classmethod
    def _known(cls, value: int) -> int:
        if value not in FORMAT_VERSIONS:
            raise ValueError(f"must be one of {', '.join(map(str, FORMAT_VERSIONS))}")
        return value


class JobResource(BaseModel):
    """A job as the service's callers see it: where it stands, nothing of how it is run."""

    id: UUID
    kind: str
    logical_key: str
    state: str
    attempt_count: int
    created_at: datetime
    finished_at: datetime | None
    error_code: str | None

    @classmethod
    def of(cls, view: JobView) -> Self:
        """Pick the public part; an error's message may hold internals, its code may not."""
        error = view.last_error
        return cls(
            id=view.id,
            kind=view.kind,
            logical_key=view.logical_key,
            state=view.state,
            attempt_count=view.attempt_count,
            created_at=view.created_at,
            finished_at=view.finished_at,
            error_code=error.code if error is not None else None,
        )


class AcceptedJob(JobResource):
    """Body of 202: the job, and whether this request made it."""

    created: bool


class ArtifactResource(BaseModel):
    """A finished document."""

    object_key: str
    sha256: str
    size: int


class StatementResource(BaseModel):
    """Body of GET /statements/{account_id}/{period}/{format_version}."""

    account_id: str
    period: str
    format_version: int
    status: str
    job_id: UUID
    artifact: ArtifactResource | None

    @classmethod
    def of(cls, statement: Statement, artifact: StatementArtifact | None) -> Self:
        """Join a statement with its document, if there is one yet."""
        document = None
        if artifact is not None:
            document = ArtifactResource(object_key=artifact.object_key, sha256=artifact.sha256, size=artifact.size)
        return cls(
            account_id=statement.account_id,
            period=statement.period,
            format_version=statement.format_version,
            status=statement.status,
            job_id=statement.job_id,
            artifact=document,
        )


class Problem(BaseModel):
    """Body of every 404 and 409."""

    code: str
    detail: str
