"""What must not be found anywhere."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from planted.canaries import ALL
from support.sealing import MARK

# Another one lets a run that leaks on purpose be watched within one that is watched itself.
_MARK = os.environ.get("PLANTED_MARK", "canary-")
_LEAST = 12  # characters that a server's password must have to be told from other words


def _coded(mark: bytes) -> tuple[str, str]:
    """Return how what begins with the mark begins in hexadecimal and in base64, of either alphabet."""
    return mark.hex(), base64.b64encode(mark[: len(mark) // 3 * 3]).decode()


class Words:
    """The secrets, in every form in which one might come out."""

    def __init__(self, mark: str = _MARK) -> None:
        self._kinds: dict[str, set[str]] = {
            "a planted value": {mark + "[0-9a-z]", *_coded(mark.encode())},
            "a planted key": {re.escape(word) for word in ALL if not word.startswith("canary-")},
            "a test's key": {MARK.decode(), *_coded(MARK)},
        }

    def add_address(self, found: Any) -> None:
        """Learn the password of a server's URL."""
        password = urlsplit(str(getattr(found, "server_url", found))).password or ""
        raw = unquote(password)
        if len(raw) >= _LEAST:
            self._add("a server's password", [password, raw, quote(raw, safe=""), raw.encode().hex()])

    @property
    def pattern(self) -> str:
        """A regular expression for all of them, as Python and PostgreSQL read it."""
        return "|".join(sorted(word for words in self._kinds.values() for word in words))

    def found(self, text: str) -> list[str]:
        """Return the kinds of which a text holds any."""
        return [kind for kind, words in list(self._kinds.items()) if re.search("|".join(words), text)]

    def _add(self, kind: str, words: Iterable[str]) -> None:
        self._kinds[kind] = self._kinds.get(kind, set()) | {re.escape(word) for word in words}
