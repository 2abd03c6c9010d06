"""The inbox: once per key, for whatever else must be taken once, such as webhooks and other systems' messages.

    claim = once(session, f"stripe:{event.id}", {"type": event.type})
    if claim.first:
        claim.store(book(session, event))  # commits with the claim, or neither does
    answer = claim.result

Claim and work belong to the caller's transaction: a rollback takes both away, and the next delivery is the first. A
rival that has claimed the same key and not yet ended is waited for. What each isolation level gives is as for
`enqueue`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from pydantic import BaseModel

from outbox.database.link import Link
from outbox.database.statements import Statements, statements_for
from outbox.database.targets import AsyncTarget, Target, awaitable, refusing_at_once, schema_of, writable
from outbox.submitting.side_lookup import beside
from outbox_schemas import InboxKeyConflict, NameRefused, SubmissionUnresolved
from outbox_schemas.documents import document_text, read_back
from outbox_schemas.exactness import text_digest
from outbox_schemas.names import check_key

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

__all__ = ["MAX_RESULT_BYTES", "AsyncOnce", "Once", "once", "once_async", "purge_inbox"]

MAX_RESULT_BYTES = 64 * 1024
MAX_ARGUMENTS_BYTES = 1024 * 1024
# Part of every digest on record: it says how arguments become one, and never changes.
_DIGEST_VERSION = 1
_TRIES = 5
_UNRESOLVED = "another transaction holds this inbox key and can't be seen; retry the whole transaction"


@dataclass(slots=True)
class Once:
    """A key as this transaction has found it.

    Attributes:
        key: the key.
        first: True if this transaction has claimed it: do the work, and `store` what is to be answered on a repeat.
        result: what was stored, as JSON gives it back; None if nothing was.
    """

    key: str
    first: bool
    result: Any = None
    _connection: sa.Connection | None = field(default=None, repr=False)
    _transaction: sa.RootTransaction | None = field(default=None, repr=False)
    _statements: Statements | None = field(default=None, repr=False)

    def store(self, result: Any) -> None:
        """Keep a result for later repeats, in the same transaction. Only for the first, and only once.

        Raises:
            PayloadError: JSON can't hold it exactly, or it is larger than 64 KiB; nothing was written.
            RuntimeError: this is a repeat, a result is stored already, the claim was rolled back, or its transaction
                has ended.
        """
        text = document_text(result, "result", MAX_RESULT_BYTES)
        if not self.first or self._connection is None or self._statements is None:
            raise RuntimeError(f"inbox key {self.key!r} is a repeat here: its result stands")
        # After it the key may be another's, who has stored nothing yet.
        if self._connection.closed or self._connection.get_transaction() is not self._transaction:
            raise RuntimeError(
                f"inbox key {self.key!r}: the transaction that has claimed it has ended; store the result before that"
            )
        if not self._statements.run_within(self._connection, "keep_once", {"key": self.key, "result": text}):
            raise RuntimeError(
                f"inbox key {self.key!r} has a result, which stands; or its claim was rolled back: then claim it anew"
            )
        self.result = read_back(text)


@dataclass(frozen=True, slots=True)
class AsyncOnce:
    """`Once` for an async session or connection."""

    _inner: Once
    _target: AsyncSession | AsyncConnection = field(repr=False)

    @property
    def key(self) -> str:
        """The key."""
        return self._inner.key

    @property
    def first(self) -> bool:
        """Whether this transaction has claimed it."""
        return self._inner.first

    @property
    def result(self) -> Any:
        """What was stored."""
        return self._inner.result

    async def store(self, result: Any) -> None:
        """Keep a result, as `Once.store`."""
        await self._target.run_sync(lambda _: self._inner.store(result))


def once(
    target: Target, key: str, arguments: Mapping[str, Any] | list[Any] | BaseModel, *, schema: str | None = None
) -> Once:
    """Claim a key in the caller's transaction, or find out that it was claimed before.

    Args:
        target: an open `Session` or `Connection`; the claim commits or vanishes with its transaction.
        key: 1 to 512 bytes of printable text, unique in the installation: begin it with where it comes from.
        arguments: what the key stands for, as JSON; a repeat must bring the same. Only a digest is stored.
        schema: the installation's schema, as in `enqueue`.

    Raises:
        InvalidSubmission: key or arguments are out of bounds; no SQL ran.
        InboxKeyConflict: the key was used with other arguments. The transaction stays healthy.
        SubmissionUnresolved: the key is taken, but can't be seen, again and again. Run the whole transaction again.
    """
    checked, digest = _checked(key, arguments)
    return _claim(target, checked, digest, schema)


@refusing_at_once
async def once_async(
    target: AsyncTarget, key: str, arguments: Mapping[str, Any] | list[Any] | BaseModel, *, schema: str | None = None
) -> AsyncOnce:
    """`once` for an `AsyncSession` or `AsyncConnection`; the same promises and errors."""
    checked, digest = _checked(key, arguments)
    inner = awaitable(target, "once_async")
    return AsyncOnce(await inner.run_sync(lambda twin: _claim(twin, checked, digest, schema)), inner)


def purge_inbox(link: Link, keep_s: float, *, batch: int = 1000) -> int:
    """Delete up to `batch` of the keys that are older than `keep_s` seconds, oldest first, and return how many there
    were. Keys that a transaction holds just now are passed over.
    """
    return len(link.run("purge_inbox", keep_s=keep_s, batch=batch))


def _checked(key: str, arguments: Any) -> tuple[str, str]:
    try:
        checked = check_key(key)
    except NameRefused as error:
        raise NameRefused("inbox key", error.problem) from None
    text = document_text(
        dict(arguments) if isinstance(arguments, Mapping) else arguments, "arguments", MAX_ARGUMENTS_BYTES
    )
    return checked, text_digest(_DIGEST_VERSION, text).hex()


def _claim(target: Target, key: str, digest: str, schema: str | None) -> Once:
    statements, connection = statements_for(schema_of(target, schema)), writable(target)
    for _ in range(_TRIES):
        answer = statements.value_within(connection, "once", {"key": key, "digest": digest})
        if answer is None:
            return Once(
                key,
                first=True,
                _connection=connection,
                _transaction=connection.get_transaction(),
                _statements=statements,
            )
        holder = json.loads(answer) or _find_beside(connection, statements, key)
        if holder:
            return _repeat(key, digest, *holder)
    raise SubmissionUnresolved(_UNRESOLVED)


def _repeat(key: str, digest: str, used_with: str, result: str | None) -> Once:
    if used_with != digest:
        raise InboxKeyConflict(key)
    return Once(key, first=False, result=None if result is None else read_back(result))


def _find_beside(connection: sa.Connection, statements: Statements, key: str) -> list[Any] | None:
    """Look a key up beside the caller's transaction, whose snapshot is older than the claim."""
    with beside(connection.engine).connect() as aside:
        answer = statements.value_within(aside, "find_once", {"key": key})
    found: list[Any] | None = None if answer is None else json.loads(answer)
    return found
