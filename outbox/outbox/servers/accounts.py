"""Which system account a private server runs under, and whether that account can reach a path."""

import os
import pwd
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict


@dataclass(frozen=True)
class Account:
    """A system account that a child process can be started under."""

    name: str
    uid: int
    gid: int


class RunAs(TypedDict, total=False):
    """The keyword arguments of `subprocess.Popen` that change the account."""

    user: int
    group: int
    extra_groups: list[int]


def account(preferred: Iterable[str]) -> Account | None:
    """Return the first of these accounts that exists, or None: stay who you are.

    Only root can change accounts, so everybody else gets None.
    """
    if os.geteuid() != 0:
        return None
    for name in preferred:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    return None


def run_as(who: Account | None) -> RunAs:
    """Return the arguments that start a child under `who`.

    The system call does it without `su` or `runuser` in between, so the child's pid is the server's own.
    """
    return {} if who is None else {"user": who.uid, "group": who.gid, "extra_groups": []}


def reachable(path: Path, who: Account | None) -> bool:
    """Tell whether `who` may enter every folder above `path` and read and execute `path` itself."""
    if who is None:
        return os.access(path, os.R_OK | os.X_OK)
    if not all(_allows(folder, who, execute_only=True) for folder in path.absolute().parents):
        return False
    return _allows(path, who, execute_only=False)


def _allows(path: Path, who: Account, *, execute_only: bool) -> bool:
    """Tell whether the mode bits let `who` execute (and unless `execute_only` also read) `path`."""
    status = path.stat()
    wanted = stat.S_IXOTH if execute_only else stat.S_IXOTH | stat.S_IROTH
    if status.st_uid == who.uid:
        wanted <<= 6
    elif status.st_gid == who.gid:
        wanted <<= 3
    return status.st_mode & wanted == wanted
