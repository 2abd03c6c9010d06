"""What a consumer does with sealed jobs: it opens them where their handler runs, and seals what their handler's failure
says.
"""

from __future__ import annotations

from dataclasses import replace

from outbox.leases.ending import Failure
from outbox.leases.leasing import Claimed
from outbox.sealing.envelope import Identity, is_sealed
from outbox.sealing.using import current
from outbox.sealing.vault import open_payload
from outbox_consumer.basis.errors import TerminalError
from outbox_consumer.contract.job import Job
from outbox_schemas import Payload, SealBroken, UnknownKey

__all__ = ["KeyAwaited", "opened_payload", "sealed_failure"]

_UNSEALED = "the failure could not be sealed"
_IN_CLEAR = (
    "{0} is sealed, but this payload stands in clear: it was put there by somebody without the keys, or submitted "
    "before {0} was sealed. Only if it was, say accepts_clear = True on {0} until such jobs have ended, and redrive it"
)


class KeyAwaited(Exception):  # noqa: N818 - no failure: the job waits for another worker
    """The payload's key is not known here. Not `UnknownKey`, which a handler might raise for reasons of its own."""

    def __init__(self, key_id: str) -> None:
        super().__init__(key_id)
        self.key_id = key_id


def opened_payload(claimed: Claimed, job: Job, payload_type: type[Payload]) -> str:
    """Return the payload's JSON text in clear. The job keeps what opens the rest of a sealed one.

    Raises:
        KeyAwaited: another worker may have the key.
        TerminalError: the envelope does not open; or there is none, and the class is sealed: whoever can write to the
            tables could make up a payload otherwise.
    """
    text = claimed.payload_text
    if not is_sealed(text):
        if payload_type.sealed and not payload_type.accepts_clear:
            raise TerminalError(_IN_CLEAR.format(payload_type.__name__), code="payload_in_clear")
        return text
    identity = Identity(claimed.lease.job_id, claimed.tenant, claimed.kind, claimed.version)
    try:
        job.vault, plain = open_payload(current(), identity, text)
    except UnknownKey as error:
        raise KeyAwaited(error.key_id) from None
    except SealBroken as error:
        raise TerminalError(str(error), code="payload_unsealable") from None
    return plain


def sealed_failure(job: Job, failure: Failure) -> Failure:
    """Return the failure with message and traceback sealed, if the job is. Its class and code stay readable. Never
    raises: what can't be sealed is left out.
    """
    vault = job.vault
    if vault is None:
        return failure
    try:
        trace = failure.traceback
        sealed = None if trace is None else vault.seal_text(trace, "traceback")
        return replace(failure, message=vault.seal_text(failure.message, "error"), traceback=sealed)
    except Exception:  # noqa: BLE001 - nothing of it may be stored in clear, and the attempt must end
        return replace(failure, message=_UNSEALED, traceback=None)
