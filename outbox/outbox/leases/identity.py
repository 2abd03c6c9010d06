"""Who one of our processes is, for people who read the history. Ownership rests on lease tokens alone."""

from __future__ import annotations

import os
import secrets
import socket
from importlib.metadata import PackageNotFoundError, version

from outbox.leases.leasing import Worker

__all__ = ["worker_identity"]

_HOST_CHARACTERS = 100


def worker_identity() -> Worker:
    """Return this process's host, a name that no other process has, and the product's version."""
    host = socket.gethostname()[:_HOST_CHARACTERS] or "unknown"
    try:
        release = version("outbox-relay")
    except PackageNotFoundError:
        release = "unknown"
    return Worker(f"{host}/{os.getpid()}/{secrets.token_hex(4)}", host, release)
