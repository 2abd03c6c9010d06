"""Errors of our own statements on a connection of the user's: kept, but without what the statement carried.

A user's engine shows parameters in its errors unless it was made with `hide_parameters=True`, and ours carry payloads.
The server's details, hints and contexts can repeat them, too, and so can the line that a driver points at.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

__all__ = ["close_error"]

_NOTE = "the rest of the server's message is left out: it may repeat what the job carries"
# Where asyncpg's errors keep what they add to their text.
_ADDED = ("detail", "hint")
_DEPTH = 10


def close_error(error: sa.exc.StatementError) -> None:
    """Take parameters and all but the first line of every message out of the text of an error and of its causes.

    Class, cause, SQLSTATE, the statement's text and (for programs) the driver's `diag` stay.
    """
    error.hide_parameters = True
    if error.statement is None:  # no statement of ours was under way, as where a connection did not come about
        return
    if sum(map(_cut, _parts(error))):  # each of them
        error.add_note(_NOTE)


def _parts(error: sa.exc.StatementError) -> Iterator[BaseException]:
    """Yield the error, the driver's, and what that one was raised from. What the user's code was dealing with when it
    called us is `__context__`, and no affair of ours.
    """
    yield error
    part: BaseException | None = error.orig
    for _ in range(_DEPTH):
        if part is None:
            return
        yield part
        part = part.__cause__


def _cut(part: BaseException) -> bool:
    """Leave the first line of a message; tell whether there was more."""
    args = tuple(arg.partition("\n")[0] if isinstance(arg, str) else arg for arg in part.args)
    found = args != part.args
    if found:
        part.args = args
    for name in _ADDED:
        if isinstance(getattr(part, name, None), str):
            setattr(part, name, None)
            found = True
    return found
