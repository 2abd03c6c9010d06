"""Writing messages to a channel, as bytes that are mostly ready before.

pika builds the three frames of a message anew each time, with some 60 calls, and sends each by itself; that was half of
a relay's work. All messages to a queue have the same frames but for an id, the body and their lengths. So pika makes
them once, and they are cut where these belong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct

import pika
from pika import frame, spec
from pika.channel import Channel
from pika.exceptions import ChannelWrongStateError

from outbox_schemas.topology import AHEAD

__all__ = ["Envelope", "Outgoing"]

_PERSISTENT = 2
# Messages in one piece, at most: what a full socket doesn't take of a piece is copied for the next try.
_TOGETHER = 256
# What a header frame begins with: kind, channel, size of all that follows up to the end mark; class, weight, body size.
_FRAME = Struct(">BHI")
_CONTENT = Struct(">HHQ")
_END = bytes([spec.FRAME_END])
_AROUND_A_BODY = spec.FRAME_HEADER_SIZE + spec.FRAME_END_SIZE


def _properties(message_id: str, *, ahead: bool, headers: Mapping[str, str] | None = None) -> pika.BasicProperties:
    return pika.BasicProperties(
        headers=dict(headers) if headers else None,
        content_type="application/json",
        delivery_mode=_PERSISTENT,
        priority=AHEAD if ahead else None,
        message_id=message_id,
        type="outbox.hint",
    )


class Envelope:
    """What is around the body of each message to one queue: mandatory, durable, through the default exchange.

    Args:
        channel_number: the channel that it is published on.
        queue: the broker's name of the queue.
        frame_max: the connection's limit for one frame, in bytes.
        ahead: whether these messages go ahead of the others.
    """

    def __init__(self, channel_number: int, queue: str, frame_max: int, *, ahead: bool = False) -> None:
        self.queue = queue
        self.ahead = ahead
        self._channel = channel_number
        self._most = frame_max - _AROUND_A_BODY
        publish = spec.Basic.Publish(exchange="", routing_key=queue, mandatory=True)
        self._method = frame.Method(channel_number, publish).marshal()
        # One letter stands for an id that is still to come.
        header = self._marshalled("?")
        self._before_id, self._after_id = header.split(b"\x01?")

    def around(self, message_id: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
        """Return a message as the protocol writes it. Its id has 1 to 255 ASCII characters, its body is not empty. With
        headers, which few have, its frame is made anew.
        """
        if headers:
            properties = self._marshalled(message_id, headers)
        else:
            name = message_id.encode("ascii")
            properties = b"%b%c%b%b" % (self._before_id, len(name), name, self._after_id)
        return b"".join((
            self._method,
            _FRAME.pack(spec.FRAME_HEADER, self._channel, _CONTENT.size + len(properties)),
            _CONTENT.pack(spec.Basic.INDEX, 0, len(body)),
            properties,
            _END,
            self._frames(body),
        ))  # fmt: skip

    def _marshalled(self, message_id: str, headers: Mapping[str, str] | None = None) -> bytes:
        properties = _properties(message_id, ahead=self.ahead, headers=headers)
        return bytes(frame.Header(self._channel, 0, properties).marshal()[_FRAME.size + _CONTENT.size : -1])

    def _frames(self, body: bytes) -> bytes:
        most = self._most
        if len(body) > most:
            return b"".join(self._frames(body[start : start + most]) for start in range(0, len(body), most))
        return b"%b%b%b" % (_FRAME.pack(spec.FRAME_BODY, self._channel, len(body)), body, _END)


class Outgoing:
    """What was published on a channel and is not handed to the connection yet."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: list[bytes] = []
        # Not public, but in every pika of the supported range; without it messages go the long way.
        self._write: Callable[[Sequence[bytes]], None] | None = getattr(
            channel.connection, "_output_marshaled_frames", None
        )

    def envelope(self, queue: str, *, ahead: bool = False) -> Envelope:
        """Return what this channel puts around messages to a queue."""
        return Envelope(self._channel.channel_number, queue, self._channel.connection.params.frame_max, ahead=ahead)

    def put(self, envelope: Envelope, message_id: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Publish a message with the next `flush`, or before. Raises `AMQPError` if the channel isn't open."""
        if self._write is None:
            properties = _properties(message_id, ahead=envelope.ahead, headers=headers)
            self._channel.basic_publish("", envelope.queue, body, properties, mandatory=True)
        elif not self._channel.is_open:
            raise ChannelWrongStateError("the channel is not open")
        else:
            self._waiting.append(envelope.around(message_id, body, headers))
            if len(self._waiting) >= _TOGETHER:
                self.flush()

    def flush(self) -> None:
        """Hand over what waits, in one piece: pika makes one system call for each that it is given."""
        if self._write is not None and self._waiting:
            waiting, self._waiting = self._waiting, []
            self._write([b"".join(waiting)])
