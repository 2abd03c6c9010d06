"""A reference names a content, and nothing else passes for it."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import ValidationError

from outbox_schemas import NameRefused, Payload, Ref, RefCutShort, RefMismatch

CONTENT = b"statement " * 60_000
REF = Ref.of(CONTENT, uri="s3://statements/2026-05.pdf")


class Stream(io.BytesIO):
    """Gives small parts and remembers how much was taken."""

    def __init__(self, content: bytes, part: int = 100_000) -> None:
        super().__init__(content)
        self.part = part
        self.taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Return at most one part."""
        got = super().read(min(size if size is not None and size >= 0 else self.part, self.part))
        self.taken += len(got)
        return got


def test_a_reference_says_what_it_names() -> None:
    """URI, digest and size, and a file's own URI by default."""
    assert (REF.size, REF.sha256) == (len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
    assert REF.verify(CONTENT) is CONTENT


def test_a_file_is_named_by_its_path(tmp_path: Path) -> None:
    """A path gives a file: URI with the digest of what it holds."""
    path = tmp_path / "a statement.pdf"
    path.write_bytes(CONTENT)
    ref = Ref.of(path)
    assert ref.uri == path.as_uri()
    assert (ref.size, ref.sha256) == (REF.size, REF.sha256)
    assert ref.read(lambda _uri: path.open("rb")) == CONTENT
    with pytest.raises(ValueError, match="say uri="):
        Ref.of(b"x")


def test_a_reference_survives_a_payload() -> None:
    """It is a field like any other."""

    class Send(Payload):
        kind: ClassVar[str] = "test.send"
        document: Ref

        def logical_key(self) -> str:
            return self.document.sha256

    payload = Send(document=REF)
    assert Send.from_document(payload.to_document().text, 1) == payload


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (CONTENT[:-1], RefCutShort),
        (b"", RefCutShort),
        (CONTENT + b"x", RefMismatch),
        (b"X" + CONTENT[1:], RefMismatch),
    ],
)
def test_another_content_is_refused(content: bytes, error: type[Exception]) -> None:
    """By a look at the bytes and by a stream alike, and the stream is closed."""
    stream = Stream(content)
    with pytest.raises(error):
        REF.read(lambda _uri: stream)
    assert stream.closed
    with pytest.raises(error):
        REF.verify(content)


@pytest.mark.parametrize(("content", "error"), [(CONTENT, None), (CONTENT[:-1], RefCutShort), (b"x", RefCutShort)])
def test_a_stream_that_does_not_close_hides_no_verdict(content: bytes, error: type[Exception] | None) -> None:
    """What was read is what counts, right or wrong."""

    class Stuck(Stream):
        def close(self) -> None:
            closed = self.closed
            super().close()
            if not closed:  # from Python 3.13 on what a finalizer's second call raises is told, too
                raise ConnectionResetError("on close")

    if error is None:
        assert REF.read(lambda _uri: Stuck(content)) == CONTENT
    else:
        with pytest.raises(error):
            REF.read(lambda _uri: Stuck(content))


def test_no_more_is_read_than_tells_the_difference() -> None:
    """Of an endless content one byte too many is taken."""
    stream = Stream(CONTENT * 50)
    with pytest.raises(RefMismatch, match="more than"):
        REF.read(lambda _uri: stream)
    assert stream.taken == REF.size + 1


def test_a_content_too_large_for_memory_is_not_opened() -> None:
    """The limit is looked at before anything is read; parts have none."""

    def never(uri: str) -> io.BytesIO:
        raise AssertionError("opened")

    with pytest.raises(ValueError, match="use chunks"):
        REF.read(never, max_bytes=1000)
    parts = list(REF.chunks(lambda _uri: Stream(CONTENT)))
    assert b"".join(parts) == CONTENT
    assert len(parts) > 1


def test_what_the_opener_raises_passes() -> None:
    """Unreachable is not mismatched."""

    def away(uri: str) -> io.BytesIO:
        raise ConnectionRefusedError(uri)

    with pytest.raises(ConnectionRefusedError):
        REF.read(away)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "no-scheme",
        "s3://user:hunter2@host/x",
        "file:///a b",
        "file:///a\nb",
        "https://host/é",
        "s3://" + "x" * 2048,
    ],
)
def test_a_uri_that_would_travel_badly_is_refused(uri: str) -> None:
    """Unprintable, without scheme, too long, or with a password; and the error doesn't repeat it."""
    with pytest.raises(ValidationError) as caught:
        Ref(uri=uri, sha256=REF.sha256, size=1)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("fields", [{"sha256": "00"}, {"sha256": REF.sha256.upper()}, {"size": -1}, {"size": 2**60}])
def test_a_digest_and_a_size_have_their_form(fields: dict[str, object]) -> None:
    """Nothing else is taken."""
    with pytest.raises(ValidationError):
        Ref.model_validate(REF.model_dump() | fields)


def test_an_opener_that_gives_no_stream_is_told_so() -> None:
    """The content itself, or text, is a slip in the handler, which no further try would mend."""
    for given, message in (
        (CONTENT, r"not bytes; io\.BytesIO\(content\) is one"),
        (None, "not NoneType"),
        (io.StringIO("text"), "gives text"),
    ):
        with pytest.raises(NameRefused, match=rf"opener: must return a binary stream.*{message}"):
            REF.read(lambda _uri, given=given: given)  # type: ignore[misc]
