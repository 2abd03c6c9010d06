"""What a statement of user code would do to its transaction and its session, told from its text. Pure."""

from __future__ import annotations

import re
from string import whitespace

__all__ = ["changes_session", "ends_transaction", "may_be_several"]

# ROLLBACK TO, RELEASE and SAVEPOINT stay allowed: begin_nested() needs them.
_ENDING = re.compile(
    r"(?:BEGIN|START\s+TRANSACTION|COMMIT|END|ABORT|PREPARE\s+TRANSACTION|ROLLBACK(?!\s+(?:(?:WORK|TRANSACTION)\s+)?TO\b))"
    r"\b",
    re.IGNORECASE,
)

# What outlives a transaction on its connection. DO may hide anything.
_SESSION_STATE = re.compile(
    r"(?:SET(?!\s+(?:LOCAL|TRANSACTION|CONSTRAINTS)\b)|RESET|DISCARD|DEALLOCATE|LISTEN|LOAD|DO)\b", re.IGNORECASE
)
# What may stand before the first word, but for comments in blocks. Never given back: a match must not take longer than
# its text, since the interpreter does nothing else meanwhile, heartbeats included.
_BLANK = re.compile(r"(?:[\s;]|--[^\n]*+)*+")
_COMMENT_MARKS = re.compile(r"/\*|\*/")
_LOCAL_CALL = re.compile(r"\bset_config\s*\([^()]*,\s*true\s*\)", re.IGNORECASE)
_SESSION_CALL = re.compile(r"\bset_config\b|\bpg_(?:try_)?advisory_lock(?:_shared)?\b", re.IGNORECASE)


def ends_transaction(statement: str) -> bool:
    """Tell whether a statement begins or ends a transaction. Pure; looks at the first word alone."""
    return _ENDING.match(statement, _first_word(statement)) is not None


def changes_session(statement: str) -> bool:
    """Tell whether a statement may change its session beyond the transaction: settings, role, session locks. Pure;
    rather too often than too rarely, since it costs a new connection and nothing else.
    """
    if _SESSION_STATE.match(statement, _first_word(statement)):
        return True
    return _SESSION_CALL.search(_LOCAL_CALL.sub("", statement)) is not None


def _first_word(statement: str) -> int:
    """Return where a statement's first word begins: behind white space, semicolons and comments."""
    place = 0
    while True:
        blank = _BLANK.match(statement, place)
        place = place if blank is None else blank.end()
        if not statement.startswith("/*", place):
            return place
        place = _behind_comment(statement, place)


def _behind_comment(statement: str, start: int) -> int:
    """Return where a comment ends; they may stand in each other. One that is never closed ends with the text."""
    depth = 0
    for mark in _COMMENT_MARKS.finditer(statement, start):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(statement)


def may_be_several(statement: str) -> bool:
    """Tell whether a text might hold more than one statement; a semicolon may as well stand in a literal. Pure."""
    return ";" in statement.rstrip(";" + whitespace)
