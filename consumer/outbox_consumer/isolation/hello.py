"""What a child is told when it starts, and with each attempt. Pickled by one process of this program for another."""

from __future__ import annotations

import logging
import pickle
from dataclasses import dataclass

from outbox.leases.leasing import Claimed
from outbox.settings import Settings
from outbox.texts import masking
from outbox_consumer.contract.handler import AnyHandler
from outbox_consumer.contract.isolation_terms import Terms
from outbox_schemas import HandlerError

__all__ = ["Hello", "Task", "hello_for"]


@dataclass(frozen=True, slots=True)
class Hello:
    """All that a child needs before its first job. It holds the database's password: it never leaves the socket."""

    handler: AnyHandler
    settings: Settings
    terms: Terms
    secrets: list[str]
    log_level: int


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt for a child."""

    claimed: Claimed
    trusted_until: float


def hello_for(handler: AnyHandler, settings: Settings, terms: Terms) -> bytes:
    """Return what is sent to each child of a handler.

    Raises:
        HandlerError: another process could not make this handler anew.
    """
    name = type(handler).__qualname__
    if type(handler).__module__ == "__main__":
        raise HandlerError(
            f'{name} has isolation = "process" but stands in the program\'s main file, which a child process does not '
            "run; move it into a module and import it"
        )
    level = logging.getLogger().getEffectiveLevel()
    try:
        return pickle.dumps(Hello(handler, settings, terms, masking.registered(), level))
    except Exception as error:
        raise HandlerError(
            f'{name} has isolation = "process", but can\'t be sent to a child process ({type(error).__name__}): it '
            "must be a class at the top of a module, and what its __init__ keeps must be picklable"
        ) from error
