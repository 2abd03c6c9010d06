"""The provider of the matrix is nobody's to hold up, and its books are true."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from crash.processes import start_provider
from crash.provider import Provider
from outbox.servers.instance import Instance


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Yield the address of a provider in a process of its own."""
    instance = Instance("provider", None)
    try:
        yield start_provider(instance)
    finally:
        instance.close()


def test_a_client_that_is_frozen_in_a_request_holds_up_nobody(address: str) -> None:
    """Half a request sent, or an answer unread, leaves the books free for all others."""
    place = urlsplit(address)
    provider = Provider(f"{address}/frozen")
    with ExitStack() as stack:
        for sent in (b"", b"POST /frozen/charge/a HT", b"POST /frozen/charge/a HTTP/1.1\r\nHost: x\r\n\r\n") * 10:
            client = stack.enter_context(socket.create_connection((str(place.hostname), place.port or 0), timeout=10))
            client.sendall(sent)
        answers = {provider.charge("a") for _ in range(20)}
        assert len(answers) == 1
        assert [key for key, _ in provider.books().done] == ["a"]


def test_the_books_tell_of_everything_that_was_done(address: str) -> None:
    """A charge is made once per key; a mail as often as it is asked for; and a key can be looked for."""
    provider, other = Provider(f"{address}/one"), Provider(f"{address}/other")
    assert provider.find("m") is None
    assert provider.charge("c") == provider.charge("c") == provider.find("c")
    assert provider.mail("m") != provider.mail("m")
    books = provider.books()
    assert sorted(key for key, _ in books.done) == ["c", "m", "m"]
    assert books.heard == 4
    assert other.books().done == []
