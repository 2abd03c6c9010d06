"""Where a process listens, as a person writes it. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Address", "read_address"]

_LOOPBACK = "127.0.0.1"
_HIGHEST = 65_535
_FORM = re.compile(r"(?:(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[A-Za-z0-9.-]*)):)?(?P<port>[0-9]{1,5})", re.ASCII)


class Address(NamedTuple):
    """An interface's address or name, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        """Write it as it is read."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_address(text: str) -> Address:
    """Return the address that a text names, the loopback interface's where it names none, or raise `ValueError`."""
    found = _FORM.fullmatch(text.strip())
    if found is None or int(found["port"]) > _HIGHEST:
        raise ValueError(
            "must be a port from 0 to 65535, or an address and a port, such as '127.0.0.1:9464' or '[::]:9464'"
        )
    return Address(found["six"] or found["host"] or _LOOPBACK, int(found["port"]))
