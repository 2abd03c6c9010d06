"""What ends an attempt at an effect, and what a handler's `send` raises to say that surely nothing has happened."""

from __future__ import annotations

from contextlib import suppress

from outbox_consumer.basis.errors import PatientError, RetryableError, TerminalError

__all__ = [
    "EffectArgumentsChanged",
    "EffectNotSent",
    "EffectOnHold",
    "EffectRefused",
    "EffectResultUnstorable",
    "EffectUnsettled",
    "SurelyNotDone",
    "comes_of_another",
    "note_whose",
]

_WHOSE = "_outbox_effect"


class SurelyNotDone(Exception):  # noqa: N818 - it says what is known, and is mixed into errors
    """Mixed into an error that `send` raises: the effect has surely not happened, and may be sent again without asking.

    For errors of your own: `class CardDeclined(SurelyNotDone, TerminalError)`.
    """


class EffectNotSent(SurelyNotDone, PatientError):  # noqa: N818 - named by what happened
    """Raised by `send`: the request never reached the other side, or was turned away for now. A later attempt sends
    it.

    Args:
        message: for people.
        retry_after: the other side asks for patience: the attempt counts as throttled, uses up no try, and the next one
            starts no earlier. As in `ThrottledError`, but None asks for nothing.
        code: stable code, default "effect_not_sent".
    """

    default_code = "effect_not_sent"


class EffectRefused(SurelyNotDone, TerminalError):  # noqa: N818 - named by what happened
    """Raised by `send`: the other side has refused the request for good. The job fails; nothing has happened there."""

    default_code = "effect_refused"


class EffectOnHold(TerminalError):  # noqa: N818 - named by what happened
    """Nobody knows whether the effect has happened, and nothing was declared that could tell: a person has to.

    The job fails and waits; `outbox effects resolve` settles the effect, and a redrive goes on from there.
    """

    default_code = "effect_on_hold"


class EffectArgumentsChanged(TerminalError):  # noqa: N818 - named by what happened
    """The effect is on record with other arguments: the same name can't mean two requests."""

    default_code = "effect_arguments_changed"


class EffectResultUnstorable(TerminalError):  # noqa: N818 - named by what happened
    """The effect has happened and is not sent again, but what it returned could not be stored; a person may give the
    result by `outbox effects resolve`.
    """

    default_code = "effect_result_unstorable"


class EffectUnsettled(RetryableError):  # noqa: N818 - named by what happened
    """The handler has returned while nobody knows whether an effect of its job has happened. For the runtime."""

    default_code = "effect_unsettled"


def note_whose(error: BaseException, name: str) -> None:
    """Note on an error the effect whose call it has ended first."""
    if not hasattr(error, _WHOSE):
        with suppress(Exception):  # a class of the user's may refuse attributes
            setattr(error, _WHOSE, name)


def comes_of_another(error: BaseException, name: str) -> bool:
    """Tell whether an error that `send` raises has ended the call of another effect in it: then it says what has become
    of that one, and nothing of this one's request.
    """
    return getattr(error, _WHOSE, name) != name
