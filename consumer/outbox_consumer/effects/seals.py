"""What an effect leaves on record of a sealed job: nothing that can be read or guessed without the job's key. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from outbox.leases.effects import Remote
from outbox.leases.ending import Failure
from outbox.sealing.vault import Vault

__all__ = ["Seals"]

_UNSEALED = "the failure could not be sealed"


@dataclass(frozen=True, slots=True)
class Seals:
    """Seals and opens one effect's record; without a vault, its job is in clear and all stays as it is."""

    vault: Vault | None
    name: str

    def digest(self, plain: bytes) -> bytes:
        """Return the digest to be kept of the arguments."""
        return plain if self.vault is None else self.vault.digest(plain, f"effect:{self.name}")

    def result(self, remote: Remote) -> Remote:
        """Return what came of the effect as it is to be stored. The other side's id stays readable, as names do."""
        if self.vault is None or remote.result_text is None:
            return remote
        return replace(remote, result_text=self.vault.seal_json(remote.result_text, f"effect:{self.name}"))

    def opened(self, text: str | None) -> str | None:
        """Return a stored result in clear. Raises `SealBroken`, also where it is none that was sealed: all are."""
        if self.vault is None or text is None:
            return text
        return self.vault.open(text, f"effect:{self.name}")

    def failure(self, failure: Failure) -> Failure:
        """Return a failure with its message sealed; its code stays readable."""
        if self.vault is None:
            return failure
        try:
            return replace(failure, message=self.vault.seal_text(failure.message, f"effect_error:{self.name}"))
        except Exception:  # noqa: BLE001 - nothing of it may be stored in clear, and the attempt must go on
            return replace(failure, message=_UNSEALED)
