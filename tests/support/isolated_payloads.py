"""Jobs whose handlers run in processes of their own, and what a test does with them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any, ClassVar
from uuid import UUID

import sqlalchemy as sa

from outbox import enqueue
from outbox_schemas import Sensitive
from support.consuming import Desk, Task


class Script(Task):
    """A job that says what its handler does, and where it leaves its marks."""

    kind: ClassVar[str] = "test.script"

    does: str
    folder: str = ""
    attempts: int = 1


class Strict(Script):
    """The same under limits."""

    kind: ClassVar[str] = "test.strict"


class Card(Script):
    """The same with something that nobody may see."""

    kind: ClassVar[str] = "test.card"

    card: Annotated[str, Sensitive] = "canary-4111"


class Sealed(Script):
    """The same, sealed."""

    kind: ClassVar[str] = "test.sealed_script"
    sealed: ClassVar[bool] = True


def submit(desk: Desk, does: str, folder: Path, *, payload: type[Script] = Script, **fields: Any) -> UUID:
    """Commit a job that does something."""
    with desk.database.engine(poolclass=sa.NullPool).begin() as connection:
        job = payload(name=f"{does}-{os.urandom(4).hex()}", does=does, folder=str(folder), **fields)
        return enqueue(connection, job).id


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and is not waited for does not."""
    try:
        if sys.platform == "linux":
            return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
        os.kill(pid, 0)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return True


class Unreadable(Script):
    """A job whose payload ends whoever reads it."""

    kind: ClassVar[str] = "test.unreadable_script"
