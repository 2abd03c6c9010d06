"""Messages are written to the connection as pika itself would write them, only in one piece."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import frame, spec
from pika.exceptions import ChannelWrongStateError

from outbox_relay.broker.outgoing import Envelope, Outgoing


class Wire:
    """A channel that keeps what is written to it."""

    def __init__(self, *, private: bool = True) -> None:
        self.channel_number = 7
        self.is_open = True
        self.written: list[bytes] = []
        self.published: list[tuple[Any, ...]] = []
        self.connection = SimpleNamespace(params=SimpleNamespace(frame_max=4096))
        if private:
            self.connection._output_marshaled_frames = self.written.extend

    def basic_publish(self, *arguments: Any, mandatory: bool) -> None:
        """Publish as pika's channel does."""
        self.published.append((*arguments, mandatory))


def frames(data: bytes) -> list[Any]:
    """Return the frames that pika reads in these bytes."""
    read = []
    while data:
        length, one = frame.decode_frame(data)
        assert length > 0, "the last frame is cut short"
        read.append(one)
        data = data[length:]
    return read


@given(
    st.text("0123456789abcdef-", min_size=1, max_size=255),
    st.binary(min_size=1, max_size=9000),
    st.integers(4096, 131_072),
    st.booleans(),
)
def test_message_is_read_as_it_was_meant(message_id: str, body: bytes, frame_max: int, ahead: bool) -> None:
    """Method, header with properties, and the body in as many frames as the connection's limit asks for."""
    data = Envelope(3, "outbox.q", frame_max, ahead=ahead).around(message_id, body)
    method, header, *bodies = frames(data)
    assert {one.channel_number for one in (method, header, *bodies)} == {3}
    assert isinstance(method.method, spec.Basic.Publish)
    assert (method.method.exchange, method.method.routing_key) == ("", "outbox.q")
    assert (method.method.mandatory, method.method.immediate) == (True, False)
    assert header.body_size == len(body)
    assert header.properties == pika.BasicProperties(
        content_type="application/json",
        delivery_mode=2,
        priority=5 if ahead else None,
        message_id=message_id,
        type="outbox.hint",
    )
    assert b"".join(one.fragment for one in bodies) == body
    assert all(len(one.fragment) + 8 <= frame_max for one in bodies)


def test_bytes_are_those_of_pika() -> None:
    """Not a byte differs from what pika makes of the same message."""
    properties = pika.BasicProperties(
        content_type="application/json", delivery_mode=2, message_id="0f-1", type="outbox.hint"
    )
    expected = (
        frame.Method(1, spec.Basic.Publish(exchange="", routing_key="outbox.é", mandatory=True)).marshal()
        + frame.Header(1, 2, properties).marshal()
        + frame.Body(1, b"{}").marshal()
    )
    assert Envelope(1, "outbox.é", 131_072).around("0f-1", b"{}") == expected


def test_messages_are_handed_over_together_and_in_order() -> None:
    """Nothing is written before the flush, then everything in one piece, once."""
    wire = Wire()
    outgoing = Outgoing(wire)  # type: ignore[arg-type]
    first, second = outgoing.envelope("outbox.a"), outgoing.envelope("outbox.b")
    outgoing.put(first, "1", b"x")
    outgoing.put(second, "2", b"y")
    assert wire.written == []
    outgoing.flush()
    outgoing.flush()
    assert wire.written == [first.around("1", b"x") + second.around("2", b"y")]


def test_pieces_are_bounded() -> None:
    """However much is published at once, no piece holds more than 256 messages, and all of it goes out."""
    wire = Wire()
    outgoing = Outgoing(wire)  # type: ignore[arg-type]
    envelope = outgoing.envelope("outbox.q")
    for number in range(600):
        outgoing.put(envelope, str(number), b"x")
    outgoing.flush()
    bodies = [[one for one in frames(piece) if isinstance(one, frame.Header)] for piece in wire.written]
    assert [len(headers) for headers in bodies] == [256, 256, 88]
    assert [one.properties.message_id for headers in bodies for one in headers] == [str(n) for n in range(600)]


def test_closed_channel_takes_nothing() -> None:
    """What was not sent must not be counted as sent, so it is refused as pika refuses it."""
    wire = Wire()
    outgoing = Outgoing(wire)  # type: ignore[arg-type]
    envelope = outgoing.envelope("outbox.q")
    wire.is_open = False
    with pytest.raises(ChannelWrongStateError):
        outgoing.put(envelope, "1", b"x")
    outgoing.flush()
    assert wire.written == []


def test_pika_without_the_short_way_is_used_by_its_public_one() -> None:
    """Where pika's connection has no such method, the same messages go out by `basic_publish`."""
    wire = Wire(private=False)
    outgoing = Outgoing(wire)  # type: ignore[arg-type]
    outgoing.put(outgoing.envelope("outbox.q"), "1", b"x")
    outgoing.put(outgoing.envelope("outbox.q", ahead=True), "2", b"y")
    outgoing.flush()
    (exchange, queue, body, properties, mandatory), (*_, ahead, _mandatory) = wire.published
    assert (exchange, queue, body, mandatory) == ("", "outbox.q", b"x", True)
    assert (properties.message_id, properties.delivery_mode, properties.type) == ("1", 2, "outbox.hint")
    assert (properties.priority, ahead.priority) == (None, 5)
