"""The connection itself, which outlives any message: whoever may publish to a queue of ours decides what stands in its
properties, and not everything that a broker passes on can be read.
"""

from __future__ import annotations

import struct

from pika.adapters.select_connection import SelectConnection
from pika.frame import Frame, Header, ProtocolHeader
from pika.spec import FRAME_END_SIZE, FRAME_HEADER, FRAME_HEADER_SIZE, Basic, BasicProperties

__all__ = ["Connection"]

_FRAME = struct.Struct(">BHL")
_CONTENT = struct.Struct(">HHQ")


class Connection(SelectConnection):  # type: ignore[misc]  # pika has no types
    """Takes a message whose properties can't be read (a timestamp in the year 50000, for example) for one without any:
    its body decides. By itself the client ends the connection there, and the next one, with every delivery anew.
    """

    def _read_frame(self) -> tuple[int, Frame | ProtocolHeader | None]:
        try:
            frame: tuple[int, Frame | ProtocolHeader | None] = super()._read_frame()
        except Exception:
            header = _bare_header(self._frame_buffer)
            if header is None:
                raise
            return header
        return frame


def _bare_header(data: bytes) -> tuple[int, Header] | None:
    """Return the content header that data begins with, its length first, without its properties; None if it doesn't."""
    kind, channel, size = _FRAME.unpack_from(data)
    if kind != FRAME_HEADER or size < _CONTENT.size:
        return None
    class_id, _, body_size = _CONTENT.unpack_from(data, FRAME_HEADER_SIZE)
    if class_id != Basic.INDEX:
        return None
    return FRAME_HEADER_SIZE + size + FRAME_END_SIZE, Header(channel, body_size, BasicProperties())
