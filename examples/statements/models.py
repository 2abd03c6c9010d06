"""The service's own tables. They know nothing of jobs except the id of the one that was asked for."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    DateTime,
    Engine,
    ForeignKeyConstraint,
    MetaData,
    Text,
    func,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.schema import CreateSchema

SCHEMA = "statements"


class Base(DeclarativeBase):
    """Declarative base; `Base.metadata` holds the business tables only."""

    metadata = MetaData(schema=SCHEMA)


class Statement(Base):
    """What a customer asked for: one document per account, period and format version.

    `issue_count` is counted up, not set, by each `apply` that commits: more than 1 would show a doubled
    effect that repeating an idempotent write hides.
    """

    __tablename__ = "statements"
    __table_args__ = (
        CheckConstraint("status IN ('pending', 'available')", name="statements_status"),
        CheckConstraint("(status = 'available') = (object_key IS NOT NULL)", name="statements_available_has_object"),
    )

    account_id: Mapped[str] = mapped_column(Text, primary_key=True)
    period: Mapped[str] = mapped_column(Text, primary_key=True)
    format_version: Mapped[int] = mapped_column(primary_key=True)
    job_id: Mapped[UUID]
    status: Mapped[str] = mapped_column(Text, server_default="pending")
    object_key: Mapped[str | None] = mapped_column(Text)
    issue_count: Mapped[int] = mapped_column(server_default="0")
    charge_id: Mapped[str | None] = mapped_column(Text)
    mail_id: Mapped[str | None] = mapped_column(Text)
    requested_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())


class StatementArtifact(Base):
    """The finished document: where it lies and which bytes it has. Written once, never replaced."""

    __tablename__ = "statement_artifacts"
    __table_args__ = (
        ForeignKeyConstraint(
            ["account_id", "period", "format_version"],
            [f"{SCHEMA}.statements.{name}" for name in ("account_id", "period", "format_version")],
        ),
        CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="statement_artifacts_sha256"),
    )

    account_id: Mapped[str] = mapped_column(Text, primary_key=True)
    period: Mapped[str] = mapped_column(Text, primary_key=True)
    format_version: Mapped[int] = mapped_column(primary_key=True)
    object_key: Mapped[str] = mapped_column(Text, unique=True)
    sha256: Mapped[str] = mapped_column(Text)
    size: Mapped[int] = mapped_column(BigInteger)
    recorded_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())


def create_tables(engine: Engine) -> None:
    """Create the business tables where they are missing.

    An example may do this; a real service keeps them in its own migrations.
    """
    with engine.begin() as connection:
        connection.execute(CreateSchema(SCHEMA, if_not_exists=True))
        Base.metadata.create_all(connection)
