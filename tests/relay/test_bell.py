"""What the release loop waits for."""

from __future__ import annotations

import os
import threading
import time

from outbox_relay.bell import Bell


def test_a_ring_ends_the_wait_until_it_is_cleared() -> None:
    """Rung before or during the wait, by any thread and however often, it is heard, and then silent again."""
    bell = Bell()
    for _ in range(5):
        bell.set()
    assert bell.wait(30)
    bell.clear()
    assert not bell.wait(0)
    ringer = threading.Thread(target=bell.set)
    ringer.start()
    assert bell.wait(30)
    ringer.join()
    bell.clear()
    assert not bell.wait(0.001)
    bell.close()


def test_a_readable_descriptor_ends_the_wait() -> None:
    """The descriptor is asked for at each wait, and its reading is the caller's affair."""
    bell = Bell()
    reader, writer = os.pipe()
    bell.also = lambda: reader
    assert not bell.wait(0)
    os.write(writer, b"x")
    began = time.monotonic()
    assert not bell.wait(30)
    assert time.monotonic() - began < 25
    os.read(reader, 1)
    bell.also = lambda: None
    assert not bell.wait(0)
    os.close(reader)
    os.close(writer)
    bell.close()


def test_whoever_rings_a_closed_bell_is_not_heard() -> None:
    """A thread that ends later than the loop does no harm."""
    bell = Bell()
    bell.close()
    bell.set()
    assert bell.is_set()
