"""Declaring queues and asking for their depth, one question after another on a channel of its own.

The broker closes the channel to answer "no" (a missing queue, other arguments, no permission). On a separate
channel that costs no message in flight.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pika.adapters.select_connection import SelectConnection
from pika.channel import Channel
from pika.exceptions import AMQPError, ChannelClosedByBroker

from outbox.logs import RateLimited

__all__ = ["ANSWER_WITHIN_S", "Topology"]

ANSWER_WITHIN_S = 5.0
_NOT_FOUND = 404
_PRECONDITION_FAILED = 406
_NOT_ALLOWED = (403, 405)


@dataclass(slots=True)
class _Question:
    queue: str
    passive: bool
    answer: Callable[[int | None], None]
    since: float


class Topology:
    """The questions of one connection. Used on the connection's thread only.

    Args:
        connection: an open connection.
        arguments: what queues are declared with.
        limited: the log for what may come often.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        connection: SelectConnection,
        arguments: Mapping[str, Any],
        limited: RateLimited,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._arguments = dict(arguments)
        self._limited = limited
        self._clock = clock
        self._questions: deque[_Question] = deque()
        self._asked: _Question | None = None
        self._channel: Channel | None = None

    def declare(self, queue: str, then: Callable[[], None]) -> None:
        """Declare a queue, then call `then`; after a refusal too, which is logged: it is used as it is."""
        self._ask(_Question(queue, passive=False, answer=lambda _: then(), since=self._clock()))

    def depth(self, queue: str, answer: Callable[[int | None], None]) -> None:
        """Pass the number of ready messages to `answer`: 0 for a missing queue, None if nobody tells."""
        self._ask(_Question(queue, passive=True, answer=answer, since=self._clock()))

    def tick(self) -> None:
        """Give up a question that has had no answer for five seconds, and its channel with it."""
        asked = self._asked
        if asked is not None and self._clock() - asked.since >= ANSWER_WITHIN_S:
            self._limited.log(logging.WARNING, "the broker gave no answer about a queue in time", queue=asked.queue)
            channel, self._channel = self._channel, None
            _discard(channel)
            self._forget_depths()
            self._answer(None)

    def close(self) -> None:
        """Answer every open question with "unknown": the connection is gone."""
        self._channel = None
        questions = [*([self._asked] if self._asked is not None else []), *self._questions]
        self._asked = None
        self._questions.clear()
        for question in questions:
            question.answer(None)

    def _forget_depths(self) -> None:
        """Leave open the depths that wait behind: a broker that says nothing would make a heap of them."""
        waiting, self._questions = self._questions, deque()
        for question in waiting:
            if question.passive:
                question.answer(None)
            else:
                self._questions.append(question)

    def _ask(self, question: _Question) -> None:
        self._questions.append(question)
        self._next()

    def _next(self) -> None:
        while self._asked is None and self._questions:
            question = self._asked = self._questions.popleft()
            question.since = self._clock()
            try:
                if self._channel is None:
                    self._channel = self._connection.channel(on_open_callback=self._put)
                    self._channel.add_on_close_callback(self._on_close)
                else:
                    self._put(self._channel)
            except AMQPError:
                # The connection is closing and will say so itself.
                self._asked = None
                question.answer(None)

    def _put(self, channel: Channel) -> None:
        asked = self._asked
        if self._channel is None or channel is not self._channel or asked is None:
            _discard(channel)  # it opened too late: the question was given up
            return
        arguments = None if asked.passive else self._arguments
        channel.queue_declare(
            asked.queue,
            passive=asked.passive,
            durable=True,
            arguments=arguments,
            callback=lambda frame: self._on_ok(asked, frame),
        )

    def _on_ok(self, question: _Question, frame: Any) -> None:
        if question is self._asked:
            self._answer(int(frame.method.message_count))

    def _on_close(self, channel: Channel, reason: BaseException) -> None:
        if channel is not self._channel:
            return  # given up before
        self._channel = None
        asked = self._asked
        if asked is None:
            return
        code = reason.reply_code if isinstance(reason, ChannelClosedByBroker) else None
        if code is not None and not asked.passive:
            self._explain(asked.queue, code, str(getattr(reason, "reply_text", "")))
        self._answer(0 if asked.passive and code == _NOT_FOUND else None)

    def _explain(self, queue: str, code: int, reply: str) -> None:
        if code == _PRECONDITION_FAILED:
            remedy = (
                "it is used as it is; to change that, stop relays and consumers, delete the queue (its hints"
                " are found again) and start them, or set queue_type to the type that it has"
            )
            event = "a queue exists with other arguments"
        elif code in _NOT_ALLOWED:
            remedy = "it is used as it is; let this user configure it, or declare it beforehand"
            event = "a queue may not be declared"
        else:
            remedy = "it is used as it is"
            event = "a queue could not be declared"
        self._limited.log(
            logging.ERROR,
            event,
            key=f"declare {queue}",
            queue=queue,
            wanted=self._arguments,
            reply=reply,
            remedy=remedy,
        )

    def _answer(self, depth: int | None) -> None:
        question, self._asked = self._asked, None
        if question is not None:
            question.answer(depth)
        self._next()


def _discard(channel: Channel | None) -> None:
    if channel is not None and channel.is_open:
        channel.close()
