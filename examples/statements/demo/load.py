"""The callers: every statement asked for twice over HTTP, both at the same moment, at a steady pace."""

import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from uuid import UUID

import httpx

from statements.accounts import Accounts
from statements.demo.plan import DemoError, Plan
from statements.renderer import FORMAT_VERSIONS

Key = tuple[str, str, int]
"""Account, period, format version."""


_HELD_S = 0.05


@dataclass(frozen=True, slots=True)
class Accepted:
    """A 202: what the service has promised."""

    key: Key
    job_id: UUID
    created: bool


def keys(accounts: Accounts, count: int) -> list[Key]:
    """Return the first `count` statements that the input allows.

    Raises DemoError when it has fewer.
    """
    every = ((item.account_id, item.period, version) for version in FORMAT_VERSIONS for item in accounts)
    found = list(itertools.islice(every, count))
    if len(found) < count:
        raise DemoError(f"the input has {len(found)} statements, {count} are wanted")
    return found


class Load:
    """Sends in the background, as far as it is allowed; `accepted` grows while it does."""

    def __init__(self, base_url: str, wanted: Sequence[Key], plan: Plan) -> None:
        self.accepted: list[Accepted] = []
        self.total = 2 * len(wanted)
        self._wanted = wanted
        self._plan = plan
        self._allowed = 0
        self._stop = threading.Event()
        self._client = httpx.Client(base_url=base_url, timeout=10, trust_env=False)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="load")
        self._outcome: Future[None] | None = None

    def start(self) -> None:
        """Begin to send."""
        self._outcome = self._thread.submit(self._send_all)

    def allow(self, statements: int) -> None:
        """Let it go on up to this many statements altogether, so that some are left for what comes later."""
        self._allowed = statements

    def allow_more(self) -> None:
        """Let it send one statement more than it may now."""
        self._allowed += 1

    def done(self) -> bool:
        """Tell whether every request was answered; raises DemoError for one that was not accepted."""
        if self._outcome is None or not self._outcome.done():
            return False
        self._outcome.result()
        return True

    def close(self) -> None:
        """Stop sending and wait for what is under way."""
        self._stop.set()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._client.close()

    def _send_all(self) -> None:
        with ThreadPoolExecutor(self._plan.senders) as senders:
            answers: list[Future[None]] = []
            for number, key in enumerate(self._wanted):
                while number >= self._allowed:
                    if self._stop.wait(_HELD_S):
                        return
                answers += [senders.submit(self._send, key) for _ in range(2)]
                if self._stop.wait(1 / self._plan.per_second):
                    return
            for answer in answers:
                answer.result()

    def _send(self, key: Key) -> None:
        body = dict(zip(("account_id", "period", "format_version"), key, strict=True))
        pause = 0.1
        while True:
            try:
                answer = self._client.post("/statements", json=body)
            except httpx.TransportError as error:
                # The outcome is unknown, so ask again: the key makes that safe.
                if pause > 3 or self._stop.wait(pause):
                    raise DemoError(f"the service does not answer: {type(error).__name__}") from error
                pause *= 2
                continue
            if answer.status_code != 202:
                raise DemoError(f"the service answered {answer.status_code}: {answer.text[:200]}")
            job = answer.json()
            self.accepted.append(Accepted(key, UUID(job["id"]), job["created"]))
            return
