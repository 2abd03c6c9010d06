"""The broker's address, read the way people really write it: see `outbox.settings.urls`, whose rules it follows.

No message raised here repeats any part of the address, since any part may belong to a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from outbox.errors import SettingsError
from outbox.settings.urlparts import split_url

__all__ = ["AMQP_VARIABLE", "AmqpAddress", "amqp_parameters"]

AMQP_VARIABLE = "OUTBOX_AMQP_URL"

_AMQP_SCHEME = re.compile(r"(amqps?)://", re.IGNORECASE)
_AMQP_OPTIONS = frozenset(
    {
        "heartbeat",
        "connection_timeout",
        "cacertfile",
        "certfile",
        "keyfile",
        "verify",
        "server_name_indication",
    }
)


@dataclass(frozen=True, slots=True)
class AmqpAddress:
    """Where the broker is and who asks.

    Attributes:
        host, port: 5672 by default, 5671 with TLS. An IPv6 address stands without brackets.
        vhost: "/" when the URL has no path or only "/".
        username, password: guest/guest when the URL names neither.
        tls: True for `amqps://`.
        heartbeat_s: seconds between heartbeats, 0 for none, None to take the caller's default.
        connection_timeout_s: seconds that connecting may take, None to take the caller's default.
        ca_file, cert_file, key_file: PEM files for TLS; without `ca_file` the system's authorities count.
        verify: False only by an explicit `verify=verify_none`.
        server_name: the name that the server's certificate must show, if not `host`.
    """

    host: str
    port: int
    vhost: str
    username: str
    password: str = field(repr=False)
    tls: bool
    heartbeat_s: int | None = None
    connection_timeout_s: float | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True
    server_name: str | None = None


def amqp_parameters(url: str, *, variable: str = AMQP_VARIABLE) -> AmqpAddress:
    """Return the broker's address from an `amqp://` or `amqps://` URL.

    The vhost is the path without its first slash, percent-decoded: `/%2F` and `//` are the vhost "/", and
    `/a%2Fb` and `/a/b` are "a/b". A missing path and a lone "/" mean the default vhost "/" too, since a
    vhost without a name can't be made.

    Raises:
        SettingsError: not such a URL, or an option that isn't known. Names `variable`, never a part of the
            URL.
    """
    text = url.strip()
    scheme = _AMQP_SCHEME.match(text)
    if scheme is None:
        raise SettingsError(f"{variable} must begin with amqp:// or amqps://, like amqp://user:password@host/vhost")
    parts = split_url(text[scheme.end() :], variable, _AMQP_OPTIONS, path_holds_slashes=True)
    if len(parts.hosts) != 1:
        raise SettingsError(f"{variable} names several hosts; name one (a load balancer or a DNS name for a cluster)")
    (host, port), tls = parts.hosts[0], scheme.group(1).lower() == "amqps"
    options = dict(parts.options)
    return AmqpAddress(
        host=host or "localhost",
        port=int(port) if port else (5671 if tls else 5672),
        vhost=parts.path[1:] or "/",
        username="guest" if parts.user is None else parts.user,
        password=("guest" if parts.user is None else "") if parts.password is None else parts.password,
        tls=tls,
        heartbeat_s=_whole_number(options.get("heartbeat"), "heartbeat", 65_535, variable),
        connection_timeout_s=_whole_number(options.get("connection_timeout"), "connection_timeout", 3600, variable),
        ca_file=options.get("cacertfile"),
        cert_file=options.get("certfile"),
        key_file=options.get("keyfile"),
        verify=_verify(options.get("verify"), variable),
        server_name=options.get("server_name_indication"),
    )


def _whole_number(value: str | None, name: str, limit: int, variable: str) -> int | None:
    if value is None:
        return None
    if not value.isascii() or not value.isdecimal() or len(value) > 9 or int(value) > limit:
        raise SettingsError(f"the option {name} in {variable} must be a whole number of seconds from 0 to {limit}")
    return int(value)


def _verify(value: str | None, variable: str) -> bool:
    if value not in (None, "verify_peer", "verify_none"):
        raise SettingsError(f"the option verify in {variable} must be verify_peer or verify_none")
    return value != "verify_none"
