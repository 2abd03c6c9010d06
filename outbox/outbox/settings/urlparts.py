"""Splitting of a server's URL whose password may hold any character, raw or percent-encoded.

The user's part could end at any @, or be missing. Each such reading is tried from the left, and the first
one that leaves a well-formed rest (hosts, ports, path, options that are known) is taken. A raw / or ? in a
password thus can't end the URL early, and an @ in an option's value can't stretch the password.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from urllib.parse import unquote

from outbox.errors import SettingsError

__all__ = ["MAX_LENGTH", "UrlParts", "split_url"]

MAX_LENGTH = 8192

_HOST = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]{2,45}(?:%[\w.%-]{1,40})?)\]|(?P<name>(?:[\w.~-]|%[0-9A-Fa-f]{2})*))"
    r"(?::(?P<port>\d{0,5}))?"
)


@dataclass(frozen=True, slots=True)
class UrlParts:
    """A split URL, percent-decoded.

    Attributes:
        user, password: None where the URL names none.
        hosts: each host with its port's text, which may be empty; one empty host if the URL names none.
        path: with its leading slash, or empty.
        options: the query's names and values, in their order.
    """

    user: str | None
    password: str | None = field(repr=False)
    hosts: tuple[tuple[str, str], ...]
    path: str
    options: tuple[tuple[str, str], ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Rest:
    """What follows the user's part, still encoded."""

    hosts: tuple[tuple[str, str], ...]
    path: str
    options: tuple[tuple[str, str], ...]


def split_url(text: str, variable: str, known_options: AbstractSet[str], *, path_holds_slashes: bool) -> UrlParts:
    """Split `text`, a URL without its scheme and `://`.

    Raises:
        SettingsError: no reading is well-formed. Names `variable` and the remedy, never a part of the URL.
    """
    if len(text) > MAX_LENGTH:
        raise SettingsError(f"{variable} has {len(text)} characters; at most {MAX_LENGTH} are allowed")
    for userinfo, following in _readings(text):
        rest = _rest(following, known_options, path_holds_slashes=path_holds_slashes)
        if rest is not None:
            return _decoded(userinfo, rest, variable)
    raise SettingsError(_complaint(text, variable, known_options))


def _readings(text: str) -> Iterator[tuple[str | None, str]]:
    yield None, text
    for found in re.finditer("@", text):
        yield text[: found.start()], text[found.end() :]


def _rest(text: str, known_options: AbstractSet[str], *, path_holds_slashes: bool) -> _Rest | None:
    """Return the parts of `text` if it is hosts, path and options, and nothing else."""
    address, _, query = text.partition("?")
    authority, slash, path = address.partition("/")
    hosts = tuple(_host(item) for item in authority.split(","))
    if None in hosts or "@" in path or ("/" in path and not path_holds_slashes):
        return None
    options: list[tuple[str, str]] = []
    for item in query.split("&") if query else ():
        name, equals, value = item.partition("=")
        if not equals or name not in known_options:
            return None
        options.append((name, value))
    return _Rest(tuple(host for host in hosts if host is not None), slash + path, tuple(options))


def _host(text: str) -> tuple[str, str] | None:
    found = _HOST.fullmatch(text)
    if found is None or int(found["port"] or 0) > 65_535:
        return None
    return found["six"] or found["name"] or "", found["port"] or ""


def _decoded(userinfo: str | None, rest: _Rest, variable: str) -> UrlParts:
    user, colon, password = (userinfo or "").partition(":")
    return UrlParts(
        user=None if userinfo is None else _decode(user, "user", variable),
        password=_decode(password, "password", variable) if colon else None,
        hosts=tuple((_decode(host, "host", variable), port) for host, port in rest.hosts),
        path=_decode(rest.path, "path", variable),
        options=tuple((name, _decode(value, f"option {name}", variable)) for name, value in rest.options),
    )


def _decode(text: str, part: str, variable: str) -> str:
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise SettingsError(
            f"the {part} in {variable} has percent-encoded bytes that aren't UTF-8; write a literal percent sign as %25"
        ) from None
    if "\0" in decoded:
        raise SettingsError(f"the {part} in {variable} holds a NUL character, which no server accepts")
    return decoded


def _complaint(text: str, variable: str, known_options: AbstractSet[str]) -> str:
    """Say what is most likely wrong, from known words alone."""
    query = text.rpartition("?")[2] if "?" in text else ""
    for item in query.split("&"):
        name, equals, _ = item.partition("=")
        near = difflib.get_close_matches(name[:64], known_options, n=1, cutoff=0.75) if equals else []
        if near and name not in known_options:
            return f"{variable} has an option that isn't known; did you mean {near[0]}?"
    return (
        f"{variable} can't be read as scheme://user:password@host:port/name?option=value; check that the "
        "port is a number up to "
        "65535 and each option a known one, and percent-encode special characters in the password (@ %40, / "
        "%2F, ? %3F, % %25)"
    )
