"""Writing to what somebody else has to empty."""

from __future__ import annotations

import os

import pytest

from outbox.processes import output
from outbox.processes.output import BoundedOutput


def test_a_file_that_is_ready_and_takes_nothing_is_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not block may have room for less than a piece: that, too, has its bound."""
    tries: list[int] = []

    def takes_nothing(_file: int, _piece: bytes) -> int:
        tries.append(1)
        assert len(tries) < 100
        raise BlockingIOError

    reading, writing = os.pipe()
    try:
        monkeypatch.setattr(output.os, "write", takes_nothing)
        lines = BoundedOutput(writing, wait_s=0.1)
        assert lines.write(b"one\n") is False
        assert lines.left_out == 1
    finally:
        os.close(reading)
        os.close(writing)
