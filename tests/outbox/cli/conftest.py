"""What the tests of commands share: a command line on the test's own database."""

from __future__ import annotations

from typing import Any

import pytest

from outbox.cli import root


@pytest.fixture
def canaries() -> tuple[str, ...]:
    """Return what no command may show; a file with secrets of its own names them."""
    return ()


@pytest.fixture
def run(
    database_url: str,
    canaries: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Any:
    """Run a command line on this test's database and return exit code, stdout and stderr."""
    monkeypatch.setenv("OUTBOX_DATABASE_URL", database_url)

    def run(*arguments: object) -> tuple[int, str, str]:
        code = root.run([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        for canary in canaries:
            assert canary not in shown.out + shown.err
        return code, shown.out, shown.err

    return run
