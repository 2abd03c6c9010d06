"""The HTTP face of the service. It writes to PostgreSQL and never talks to the broker."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from sqlalchemy import select
from sqlalchemy.orm import Session, sessionmaker

from outbox import LogicalKeyConflict, get_job
from statements.accounts import Accounts, UnknownAccountError, UnknownPeriodError
from statements.database import open_engine, url_from_environment
from statements.models import Statement, StatementArtifact
from statements.resources import AcceptedJob, JobResource, Problem, StatementRequest, StatementResource
from statements.service import request_statement

_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": Problem}}
_CONFLICT: dict[int | str, dict[str, Any]] = {409: {"model": Problem}}


class NoSuchResourceError(LookupError):
    """A job or statement that was never asked for."""


def create_app(database_url: str, accounts: Accounts | None = None) -> FastAPI:
    """Return the application; `accounts` defaults to the CSV file of the environment.

    Raises ValueError when the CSV file is not well formed.
    """
    engine = open_engine(database_url)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        engine.dispose()

    app = FastAPI(title="Statements", lifespan=lifespan)
    app.state.sessions = sessionmaker(engine)
    app.state.accounts = Accounts.from_environment() if accounts is None else accounts
    _add_routes(app)
    _add_problems(app)
    return app


def from_environment() -> FastAPI:
    """Return the application for `uvicorn --factory statements.api:from_environment`."""
    return create_app(url_from_environment())


def _session(request: Request) -> Iterator[Session]:
    with request.app.state.sessions() as session:
        yield session


def _accounts(request: Request) -> Accounts:
    accounts: Accounts = request.app.state.accounts
    return accounts


DatabaseSession = Annotated[Session, Depends(_session)]
KnownAccounts = Annotated[Accounts, Depends(_accounts)]


def submit(
    body: StatementRequest, session: DatabaseSession, accounts: KnownAccounts, response: Response
) -> AcceptedJob:
    """Accept a statement to render; repeating the request gives the same job."""
    with session.begin():
        ref = request_statement(session, accounts, **body.model_dump())
        view = get_job(session, ref.id)
    # The answer goes out only after the commit: a 202 is a promise.
    if view is None:
        raise NoSuchResourceError(f"job {ref.id} is gone")
    response.headers["Location"] = f"/jobs/{ref.id}"
    return AcceptedJob(created=ref.created, **JobResource.of(view).model_dump())


def show_job(job_id: UUID, session: DatabaseSession) -> JobResource:
    """Show where a job stands."""
    view = get_job(session, job_id)
    if view is None:
        raise NoSuchResourceError(f"no job {job_id}")
    return JobResource.of(view)


def show_statement(account_id: str, period: str, format_version: int, session: DatabaseSession) -> StatementResource:
    """Show a statement, with its document once it is available."""
    key = (account_id, period, format_version)
    statement = session.get(Statement, key) if _storable(*key) else None
    if statement is None:
        raise NoSuchResourceError("this statement was never asked for")
    return StatementResource.of(statement, session.get(StatementArtifact, key))


def health(session: DatabaseSession) -> dict[str, str]:
    """Answer once the database does."""
    session.execute(select(1))
    return {"status": "ok"}


def _storable(account_id: str, period: str, format_version: int) -> bool:
    # A path may hold what no column can; that is "not found", not a server error.
    return "\0" not in account_id + period and 0 < format_version < 2**31


def _add_routes(app: FastAPI) -> None:
    app.post("/statements", status_code=202, responses=_NOT_FOUND | _CONFLICT)(submit)
    app.get("/jobs/{job_id}", responses=_NOT_FOUND)(show_job)
    app.get("/statements/{account_id}/{period}/{format_version}", responses=_NOT_FOUND)(show_statement)
    app.get("/health")(health)


def _add_problems(app: FastAPI) -> None:
    problems: dict[type[Exception], tuple[int, str]] = {
        UnknownAccountError: (404, "unknown_account"),
        UnknownPeriodError: (404, "unknown_period"),
        NoSuchResourceError: (404, "not_found"),
        LogicalKeyConflict: (409, "source_changed"),
    }
    for error, (status, code) in problems.items():
        app.add_exception_handler(error, _problem(status, code))


def _problem(status: int, code: str) -> Any:
    def answer(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse(Problem(code=code, detail=str(error)).model_dump(), status_code=status)

    return answer
