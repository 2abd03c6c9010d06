"""A large input by reference: where it is, its size and its SHA-256, verified whenever it is read. The reading itself
is the caller's: an opener turns the URI into a stream.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, Protocol, Self

from pydantic import Field, field_validator

from outbox_schemas.errors import LeaseLost, NameRefused, RefCutShort, RefMismatch
from outbox_schemas.names import nature_of
from outbox_schemas.refusals import Unchangeable

__all__ = ["MAX_READ_BYTES", "Opener", "Readable", "Ref"]

MAX_READ_BYTES = 64 * 1024 * 1024
_CHUNK = 256 * 1024
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]+")
_CREDENTIALS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#@]*:[^/?#]*@")


class Readable(Protocol):
    """A binary stream, as `open`, `urllib` and most storage clients give it."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end."""

    def close(self) -> object:
        """Let go of it."""


Opener = Callable[[str], Readable]
"""Turns a URI into a stream. What it raises passes through `Ref.read` as it is: unreachable is not mismatched."""


class Ref(Unchangeable):
    """What a payload says of a large input instead of holding it.

    Attributes:
        uri: where it is; printable ASCII without white space, and without a password: credentials are the opener's.
        sha256: the content's digest, 64 hexadecimal digits.
        size: the content's length in bytes.
    """

    uri: Annotated[str, Field(min_length=1, max_length=2048)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0, lt=2**53)]

    @field_validator("uri")
    @classmethod
    def _plain_uri(cls, uri: str) -> str:
        if not _URI.fullmatch(uri):
            raise ValueError("must be a URI of printable ASCII, percent-encoded where need be")
        if _CREDENTIALS.match(uri):
            raise ValueError("must not hold a password; give it to the opener")
        return uri

    @classmethod
    def of(cls, source: bytes | Path, *, uri: str | None = None) -> Self:
        """Return the reference to a content: bytes, with the URI under which they are kept, or a file, whose own URI is
        the default.
        """
        if isinstance(source, bytes | bytearray | memoryview):
            if uri is None:
                raise ValueError("bytes have no place of their own; say uri=… where they are kept")
            return cls(uri=uri, sha256=hashlib.sha256(source).hexdigest(), size=len(source))
        if not callable(getattr(source, "open", None)):
            raise NameRefused("source", f"must be bytes or a Path, not {nature_of(source)}")
        with source.open("rb") as stream:
            digest, size = _digest_of(stream)
        return cls(uri=uri or source.resolve().as_uri(), sha256=digest, size=size)

    def verify(self, content: bytes) -> bytes:
        """Return the content if it is the one that is meant.

        Raises:
            RefCutShort: it is shorter.
            RefMismatch: it is longer, or other.
            NameRefused: it is no bytes.
        """
        if not isinstance(content, bytes | bytearray | memoryview):
            raise NameRefused("content", f"must be bytes, not {nature_of(content)}")
        self._check_size(len(content))
        self._check_digest(hashlib.sha256(content).hexdigest())
        return content

    def read(self, opener: Opener, *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """Return the whole content, verified. Never takes more than `size` + 1 bytes from the stream.

        Raises:
            ValueError: it has more than `max_bytes`, which would have to be held in memory; use `chunks`.
            RefCutShort, RefMismatch: as `verify`. What `opener` or the stream's `read` raises passes as it is; what its
                `close` raises is dropped, since it would hide these.
        """
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, int):
            raise NameRefused("max_bytes", f"must be a whole number of bytes, not {nature_of(max_bytes)}")
        if self.size > max_bytes:
            raise ValueError(
                f"the content has {self.size} bytes; {max_bytes} are read at once: use chunks(), or max_bytes"
            )
        return b"".join(self.chunks(opener))

    def chunks(self, opener: Opener) -> Iterator[bytes]:
        """Yield the content in parts as it comes, and raise at its end if it was not the one that is meant: until the
        iteration has ended, nothing is verified, so don't act on the parts before.

        Raises the same as `read`.
        """
        if not callable(opener):
            raise NameRefused("opener", f"must be a function from a URI to a stream, not {nature_of(opener)}")
        stream = opener(self.uri)
        if not callable(getattr(stream, "read", None)):
            it = "; io.BytesIO(content) is one" if isinstance(stream, bytes | bytearray) else ""
            raise NameRefused("opener", f"must return a binary stream, not {type(stream).__name__}{it}")
        try:
            yield from self._checked(stream)
        finally:
            _close(stream)

    def _checked(self, stream: Readable) -> Iterator[bytes]:
        digest = hashlib.sha256()
        left = self.size + 1  # one more tells that it goes on
        while left > 0 and (part := stream.read(min(_CHUNK, left))):
            if isinstance(part, str):
                raise NameRefused("opener", "must return a binary stream; its read() gives text")
            left -= len(part)
            if left < 1:
                break
            digest.update(part)
            yield part
        self._check_size(self.size + 1 - left)
        self._check_digest(digest.hexdigest())

    def _check_size(self, size: int) -> None:
        if size < self.size:
            raise RefCutShort(f"the content ended after {size} of {self.size} bytes")
        if size > self.size:
            raise RefMismatch(f"the content has more than the {self.size} bytes that it had")

    def _check_digest(self, digest: str) -> None:
        if digest != self.sha256:
            raise RefMismatch("the content has another SHA-256 than it had: it was replaced or damaged")


def _close(stream: Readable) -> None:
    """Close a stream. That it can't be closed takes nothing from what was read, and must not hide what that was."""
    try:
        stream.close()
    except LeaseLost:  # not about the stream
        raise
    except Exception:  # noqa: BLE001 - a storage client's, or a socket's
        return


def _digest_of(stream: BinaryIO) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    while part := stream.read(_CHUNK):
        digest.update(part)
        size += len(part)
    return digest.hexdigest(), size
