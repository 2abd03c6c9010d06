"""Secrets out of every text that leaves the process, and control characters out of every text for a terminal.

Two nets, because each alone has holes. Registered secrets are replaced wherever they stand, in the
encodings that drivers and tracebacks put them in. Patterns (`scheme://user:…@`, `password=…`) catch secrets
that nobody registered.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import traceback
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from enum import Flag
from types import TracebackType
from urllib.parse import quote, quote_plus

__all__ = [
    "MASK",
    "Cut",
    "forget",
    "forget_all",
    "forms",
    "install_excepthook",
    "mask",
    "masked_besides",
    "masked_line",
    "masked_start",
    "named",
    "pattern_of",
    "printable",
    "register",
    "registered",
    "shortened",
    "traceback_text",
    "without_cut_ones",
]

MASK = "***"

# Below this length a secret is part of too many innocent words; only the patterns hide it, where a secret
# is expected.
SHORTEST_REGISTERED = 3
# From here on a secret is replaced anywhere; a shorter one only where it stands alone, so that a password
# "user" doesn't turn "username" into "***name".
REPLACED_ANYWHERE = 8
# Development passwords that are longer, yet part of words that every message needs ("postgresql", "password=").
_COMMON_WORDS = frozenset({"password", "postgres", "rabbitmq"})
MAX_REGISTERED = 256
TRACEBACK_LIMIT = 16_000

_WORDS = r"(?:password|passwd|pwd|passphrase|secret|api_?key|access_?token|auth_?token)"
_VALUE = r"""(?:'(?:[^'\\]|\\.){0,4096}'|"(?:[^"\\]|\\.){0,4096}"|[^\s'",;&)}\]]{1,4096})"""
_PATTERNS = (
    # Greedy up to the last @ of the run: a raw password may itself hold an @.
    (re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s:/@'\"]{0,256}:)[^\s]{1,2048}@"), rf"\g<1>{MASK}@"),
    (re.compile(rf"\b(\w{{0,40}}{_WORDS}\s{{0,4}}=\s{{0,4}}){_VALUE}", re.IGNORECASE), rf"\g<1>{MASK}"),
    # As a mapping prints it: {'password': 'x'} or {"password": "x"}.
    (
        re.compile(rf"""(['"]\w{{0,40}}{_WORDS}['"]\s{{0,4}}:\s{{0,4}}){_VALUE}""", re.IGNORECASE),
        rf"\g<1>'{MASK}'",
    ),
)


class Cut(Flag):
    """Where a text was cut out of a longer one: there the end of a secret may stand, or its beginning, that no pattern
    of the whole finds.
    """

    NOWHERE = 0
    BEFORE = 1
    AFTER = 2


class _Registry:
    """The registered secrets and one compiled pattern of all their forms. Bounded: the oldest is dropped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: OrderedDict[str, None] = OrderedDict()
        self._pattern: re.Pattern[str] | None = None

    def add(self, secret: str) -> None:
        with self._lock:
            if secret in self._secrets:
                self._secrets.move_to_end(secret)
                return
            self._secrets[secret] = None
            while len(self._secrets) > MAX_REGISTERED:
                self._secrets.popitem(last=False)
            self._pattern = None

    def remove(self, secret: str) -> None:
        with self._lock:
            if self._secrets.pop(secret, secret) is None:
                self._pattern = None

    def all(self) -> list[str]:
        with self._lock:
            return list(self._secrets)

    def pattern(self) -> re.Pattern[str] | None:
        """Return the pattern of all secrets, compiled when it is first needed; None if there are none."""
        with self._lock:
            if self._pattern is None and self._secrets:
                self._pattern = pattern_of(tuple(self._secrets))
            return self._pattern

    def clear(self) -> None:
        with self._lock:
            self._secrets.clear()
            self._pattern = None


_registry = _Registry()

masked_besides: ContextVar[Callable[[str, Cut], str] | None] = ContextVar("outbox_masked_besides", default=None)
"""What else `mask` does to a text in this thread or task: the values of a job's payload, see `outbox.texts.hiding`."""


def register(secret: str) -> None:
    """Have `mask` replace `secret` from now on, in all its usual encodings.

    A secret of one or two characters isn't registered, since replacing every "a" would hide nothing and
    garble all. One of three to seven characters, or an everyday word like "postgres", is replaced only where
    no letter or digit touches it.
    """
    if len(secret) >= SHORTEST_REGISTERED:
        _registry.add(secret)


def registered() -> list[str]:
    """Return every registered secret, for a child process that has to mask them, too."""
    return _registry.all()


def forget(text: str) -> None:
    """Let `mask` show a text that was registered before it could be looked at, and turned out to hold no secret."""
    _registry.remove(text)


def forget_all() -> None:
    """Drop every registered secret. For tests; a running program has no reason to."""
    _registry.clear()


def mask(text: str, cut: Cut = Cut.NOWHERE) -> str:
    """Return `text` with every registered secret, and everything that looks like one, replaced by `***`; also the part
    of one that a `cut` has left.
    """
    besides = masked_besides.get()
    if besides is not None:
        text = besides(text, cut)
    pattern = _registry.pattern()
    if pattern is not None:
        text = pattern.sub(MASK, text)
        if cut:
            text = without_cut_ones(text, (form for secret in _registry.all() for form in forms(secret)), cut)
    for shape, replacement in _PATTERNS:
        text = shape.sub(replacement, text)
    return text


def printable(text: str, limit: int = 200) -> str:
    """Return `text` as one line of at most `limit` characters that can't drive a terminal.

    White space becomes single spaces. Control, format (bidirectional overrides, zero-width), surrogate,
    private-use and unassigned characters are removed. A cut text ends with an ellipsis, inside the limit.
    """
    kept: list[str] = []
    for character in text:
        if character.isspace():
            if kept and kept[-1] != " ":
                kept.append(" ")
        elif not unicodedata.category(character).startswith("C"):
            kept.append(character)
        if len(kept) > limit:
            return "".join(kept[: limit - 1]).rstrip() + "…"
    return "".join(kept).strip()


def masked_start(text: str, most: int) -> str:
    """Return the beginning of `text`, masked: of at most `most` characters, which bounds the cost."""
    return mask(text[:most], Cut.AFTER) if len(text) > most else mask(text)


def masked_line(text: str, limit: int = 200) -> str:
    """Return `text` masked and made `printable`, at a cost bounded by `limit` however long it is."""
    return printable(masked_start(text, 8 * limit), limit)


def named(name: str, text: object) -> str:
    """Return `name: text`, or the name alone where there is no text, as in many errors."""
    said = str(text)
    return f"{name}: {said}" if said.strip() else name


def shortened(text: str, limit: int) -> str:
    """Return a masked text of at most `limit` characters with its beginning and its end, where the remedy stands."""
    if len(text) <= limit:
        return text
    end = (limit - 3) * 2 // 3
    return f"{text[: limit - 3 - end]} … {text[-end:]}"


def traceback_text(error: BaseException) -> str:
    """Return the masked traceback of `error`, of at most about 16,000 characters: its beginning and its end.

    Where its text can't be made (a broken `__str__`), the class is named.
    """
    try:
        text = "".join(traceback.format_exception(error))
    except Exception as failure:  # noqa: BLE001 - a broken __str__ must not hide the error that it belongs to
        text = f"{type(error).__qualname__} (its traceback can't be shown: {type(failure).__qualname__})\n"
    # Masked before the final cut, so that the cut can't leave the first half of a secret behind.
    half = TRACEBACK_LIMIT // 2
    if len(text) > 8 * TRACEBACK_LIMIT:
        text = f"{masked_start(text, 4 * TRACEBACK_LIMIT)}\n{mask(text[-4 * TRACEBACK_LIMIT :], Cut.BEFORE)}"
    else:
        text = mask(text)
    return text if len(text) <= TRACEBACK_LIMIT else f"{text[:half]}\n…\n{text[-half:]}"


def install_excepthook() -> None:
    """Mask what Python itself prints of uncaught exceptions, in any thread and in destructors."""

    def from_main(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
            return
        _print(traceback_text(error))

    def from_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            name = args.thread.name if args.thread is not None else "unknown"
            _print(f"Exception in thread {printable(name)}:\n{traceback_text(args.exc_value)}")

    def from_destructor(args: sys.UnraisableHookArgs) -> None:
        if args.exc_value is not None:
            where = printable(mask(repr(args.object)))
            _print(f"Exception ignored in {where}:\n{traceback_text(args.exc_value)}")

    sys.excepthook = from_main
    threading.excepthook = from_thread
    sys.unraisablehook = from_destructor


def _print(text: str) -> None:
    stream = sys.stderr
    if stream is not None:
        stream.write(text)
        stream.flush()


def pattern_of(secrets: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern that finds these secrets in all their forms."""
    branches: dict[str, None] = {}
    # Longest first: a secret that begins with another one must be replaced whole.
    written = {form: secret for secret in secrets for form in forms(secret)}
    for form in sorted(written, key=len, reverse=True):
        branch = re.escape(form)
        if len(written[form]) < REPLACED_ANYWHERE or written[form] in _COMMON_WORDS:
            branch = rf"(?<![^\W_]){branch}(?![^\W_])"
        branches[branch] = None
    return re.compile("|".join(branches))


def forms(secret: str) -> set[str]:
    """Return the ways in which URLs, conninfo strings, repr and JSON write this secret."""
    encoded = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    lower = {re.sub("%[0-9A-F]{2}", lambda found: found.group().lower(), form) for form in encoded}
    conninfo = secret.replace("\\", "\\\\").replace("'", "\\'")
    quoted = {
        repr(secret)[1:-1],
        repr("'\"" + secret)[4:-1],  # as it stands inside a longer text that holds both quotes
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        conninfo,
        repr(conninfo)[1:-1],
        ascii(secret)[1:-1],
        secret.replace("'", "''"),
        secret.replace("%", "%%"),
    }
    return {secret} | encoded | lower | quoted


def without_cut_ones(text: str, written: Iterable[str], cut: Cut) -> str:
    """Return a masked text without what a cut has left at its ends of any of these forms of secrets."""
    before, after = 0, 0
    for form in written:
        if Cut.AFTER in cut:
            after = max(after, _overlap(text, form))
        if Cut.BEFORE in cut:
            before = max(before, _overlap(text[: len(form)][::-1], form[::-1]))
    if before:
        text = MASK + text[before:]
    return text[:-after] + MASK if after else text


def _overlap(text: str, form: str) -> int:
    """Return with how many characters of its own a form begins at the end of a text."""
    place = text.find(form[:1], max(0, len(text) - len(form) + 1))
    while place != -1:
        if form.startswith(text[place:]):
            return len(text) - place
        place = text.find(form[:1], place + 1)
    return 0
