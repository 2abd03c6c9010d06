"""Errors as the command line tells them: an exit code, and one masked line or one JSON object on stderr."""

from __future__ import annotations

import json
import sys

import click

from outbox.errors import BrokerError, HandlerError, InvalidSubmission, OutboxError, SettingsError
from outbox.texts.masking import masked_line, traceback_text

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "READER_GONE",
    "UNEXPECTED",
    "UNREACHABLE",
    "USAGE",
    "exit_code",
    "report",
]

FAILED = 1
USAGE = 2
UNREACHABLE = 3
UNEXPECTED = 4
INTERRUPTED = 130
READER_GONE = 141

MESSAGE_LIMIT = 1_000

# SQLSTATE classes and codes that mean "no working connection": connection exceptions, wrong password, no such
# database, too many connections, server shutting down or starting up, read-only node.
_NO_SERVER_CLASSES = ("08", "28")
_NO_SERVER_CODES = frozenset({"3D000", "53300", "57P01", "57P02", "57P03", "57P04", "25006"})
_TOO_LONG = "57014"  # the statement's time limit, or somebody has cancelled it
_NO_TABLES_CODES = frozenset({"3F000", "42P01", "42883", "42703"})


def exit_code(error: BaseException) -> int:
    """Return the exit code for an error; an OutboxError may bring its own as `exit_code`."""
    if isinstance(error, click.ClickException):
        return error.exit_code if isinstance(error, click.UsageError) or error.exit_code != 1 else FAILED
    if isinstance(error, SettingsError | InvalidSubmission | HandlerError):
        return USAGE
    own = getattr(error, "exit_code", None)
    if isinstance(own, int):
        return own
    if isinstance(error, OutboxError):
        return UNREACHABLE if isinstance(error, BrokerError) else FAILED
    return UNREACHABLE if _is_no_server(error) else _database_exit_code(error)


def report(error: BaseException, *, as_json: bool, debug: bool) -> None:
    """Write the error to stderr: one line, or with `as_json` one object with `code` and `message`."""
    if debug:
        click.echo(traceback_text(error), err=True, nl=False)
    if isinstance(error, click.UsageError) and not as_json:
        error.show()
        return
    code, message = _code(error), masked_line(_message(error), MESSAGE_LIMIT)
    if as_json:
        click.echo(json.dumps({"error": {"code": code, "message": message}}), err=True)
    else:
        click.echo(f"Error: {message}", err=True)


def _code(error: BaseException) -> str:
    if isinstance(error, click.UsageError):
        return "usage"
    if isinstance(error, OutboxError):
        return error.code
    return {UNREACHABLE: "unreachable", FAILED: "failed", USAGE: "usage"}.get(exit_code(error), "unexpected")


def _message(error: BaseException) -> str:
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OutboxError) or _is_no_server(error):
        return _text(error)
    origin = _driver_error(error)
    if origin is None:
        return f"unexpected {type(error).__name__}: {_text(error)} (--debug shows the traceback)"
    return _database_message(origin, is_away=exit_code(error) == UNREACHABLE)


def _database_message(origin: BaseException, *, is_away: bool) -> str:
    said = _text(origin)
    if _sqlstate(origin) in _NO_TABLES_CODES:
        return f"the database lacks the expected tables ({said}); run: outbox db upgrade"
    if is_away:
        return f"the database can't be reached: {said}"
    if _sqlstate(origin) == _TOO_LONG:
        return f"the database gave up ({said}); another session may hold what this needs: try again"
    return f"the database refused: {said}"


def _database_exit_code(error: BaseException) -> int:
    origin = _driver_error(error)
    if origin is None:
        return UNEXPECTED
    state = _sqlstate(origin)
    if state is None:
        # Without a SQLSTATE it wasn't the server that spoke, so the connection could not be made or is gone.
        return UNREACHABLE if type(origin).__name__ in _CONNECTION_ERRORS else UNEXPECTED
    if state in _NO_SERVER_CODES or state.startswith(_NO_SERVER_CLASSES):
        return UNREACHABLE
    return FAILED


_CONNECTION_ERRORS = frozenset({"OperationalError", "ConnectionTimeout", "InterfaceError"})


def _is_no_server(error: BaseException) -> bool:
    """Tell whether no server was found or could be started; that room, too, is loaded only where it is used."""
    servers = sys.modules.get("outbox.servers.errors")
    return servers is not None and isinstance(error, servers.NoServer)


def _driver_error(error: BaseException) -> BaseException | None:
    """Return the driver's error, unwrapped from SQLAlchemy's, whose text would repeat the whole statement.

    Neither library is imported here: an error of one that isn't loaded can't be at hand.
    """
    alchemy, psycopg = sys.modules.get("sqlalchemy.exc"), sys.modules.get("psycopg")
    if alchemy is not None and isinstance(error, alchemy.DBAPIError):
        origin = error.orig
        return origin if isinstance(origin, BaseException) else error
    return error if psycopg is not None and isinstance(error, psycopg.Error) else None


def _sqlstate(error: BaseException) -> str | None:
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return state if isinstance(state, str) else None


def _text(error: BaseException) -> str:
    """Return the server's primary message where there is one: its details may repeat the values of a row."""
    primary = getattr(getattr(error, "diag", None), "message_primary", None)
    if isinstance(primary, str):
        return primary
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not replace the error by its own
        return "its text can't be shown"
