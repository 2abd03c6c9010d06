"""What the service does with a request, apart from HTTP: one transaction for its own row and the job."""

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from outbox import enqueue
from outbox_schemas import JobRef
from statements.accounts import Accounts
from statements.models import Statement
from statements.payloads import RenderStatement


def request_statement(
    session: Session, accounts: Accounts, *, account_id: str, period: str, format_version: int
) -> JobRef:
    """Record that a statement is wanted and that a job will make it; the caller commits both or neither.

    Asking again gives the same job with `created` False.
    Raises UnknownAccountError, UnknownPeriodError, or LogicalKeyConflict when the input has changed since.
    """
    source = accounts.find(account_id, period)
    payload = RenderStatement(
        account_id=account_id, period=period, format_version=format_version, source_sha256=source.sha256
    )
    ref = enqueue(session, payload)
    session.execute(
        insert(Statement)
        .values(account_id=account_id, period=period, format_version=format_version, job_id=ref.id)
        .on_conflict_do_nothing()
    )
    return ref
