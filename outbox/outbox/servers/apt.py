"""Install RabbitMQ by apt on a throw-away test machine; no broker is left running that was not there."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from outbox.servers.errors import NoBroker
from outbox.servers.node import find_programs

UPDATE = 180  # seconds for apt-get update
INSTALL = 420  # seconds for the download and the installation
_POLICY = Path("/usr/sbin/policy-rc.d")
_MARK = "# outbox-relay: no service is started while RabbitMQ is installed for tests"
_REMEDY = "set OUTBOX_AMQP_URL, start Docker, or install rabbitmq-server yourself"


def install_rabbitmq_with_apt(log: Callable[[str], None]) -> None:
    """Install `rabbitmq-server` on Debian or Ubuntu as root; returns at once if it is there.

    Packages start their services when they are installed; this is refused for the time of the installation,
    as Debian's policy-rc.d allows. Several processes may call it at once. Bounded at about ten minutes.
    Raises NoBroker: not root, no apt, or what apt said last.
    """
    if find_programs() is not None:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NoBroker(f"RabbitMQ can be installed by apt as root on Debian and Ubuntu only; {_REMEDY}.")
    log("RabbitMQ: installing rabbitmq-server by apt")
    with _alone(), no_services(_POLICY):
        if find_programs() is not None:
            return  # another process was faster
        _apt(["update"], UPDATE)
        _apt(["install", "-y", "--no-install-recommends", "rabbitmq-server"], INSTALL)
    if find_programs() is None:
        raise NoBroker(f"apt installed rabbitmq-server, but it is not where it should be; {_REMEDY}.")


@contextmanager
def no_services(policy: Path) -> Iterator[None]:
    """Have every start of a service refused (invoke-rc.d asks `policy`), and put back what was there."""
    before = policy.read_bytes() if policy.exists() else None
    if before is not None and _MARK.encode() in before:
        before = None  # left behind by a run that was killed
    mode = policy.stat().st_mode & 0o7777 if before is not None else 0o755
    _replace(policy, f"#!/bin/sh\n{_MARK}\nexit 101\n".encode(), 0o755)
    try:
        yield
    finally:
        if before is None:
            policy.unlink(missing_ok=True)
        else:
            _replace(policy, before, mode)


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Put a whole file in place at once, as another package may be asking it this moment."""
    new = path.with_name(f"{path.name}.outbox-{os.getpid()}")
    new.write_bytes(content)
    new.chmod(mode)
    new.replace(path)


@contextmanager
def _alone() -> Iterator[None]:
    """Hold a lock against other processes that install; the wait is bounded by their own bounds."""
    with Path("/run/outbox-relay-apt.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _apt(arguments: list[str], timeout: int) -> None:
    """Run apt-get; raises NoBroker with the end of what it said if it fails or takes too long."""
    argv = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=60", *arguments]
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoBroker(f"apt-get {arguments[0]} did not end within {timeout} s; {_REMEDY}.") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-500:].replace("\n", " | ")
        raise NoBroker(f"apt-get {arguments[0]} ended with {done.returncode}: {said}; {_REMEDY}.")
