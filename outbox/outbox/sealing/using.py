"""Which keys this process has: those that the program gave it, else those of the file in its settings."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from outbox.sealing.keyfile import load_keys
from outbox.sealing.ring import KeyProvider
from outbox_schemas import SettingsError

__all__ = ["current", "required", "seals_all", "use", "use_file"]

_VARIABLE = "OUTBOX_KEYS_FILE"
_lock = threading.Lock()


class _Keys:
    """The process's keys. `looked` tells that the environment need not be asked again."""

    ring: KeyProvider | None = None
    looked = False


def use(ring: KeyProvider | None) -> None:
    """Seal and open with these keys from now on, in this process. None: forget them, and look at the environment again
    when keys are needed next.
    """
    with _lock:
        _Keys.ring, _Keys.looked = ring, ring is not None


def use_file(path: Path | None) -> None:
    """Use the key file that settings name, unless the program has said `use`. Raises as `load_keys`."""
    if path is not None and _Keys.ring is None:
        use(load_keys(path))


def current() -> KeyProvider | None:
    """Return this process's keys, or None. The first call reads the file that `OUTBOX_KEYS_FILE` names; a change of the
    file is seen by new processes. Raises as `load_keys`.
    """
    if not _Keys.looked:
        with _lock:
            path = os.environ.get(_VARIABLE)
            if not _Keys.looked and path:
                _Keys.ring = load_keys(Path(path))
            _Keys.looked = True
    return _Keys.ring


def seals_all() -> bool:
    """Tell whether every payload is sealed here, whatever its class says."""
    ring = _Keys.ring if _Keys.looked else current()
    return ring is not None and ring.seal_all


def required(whose: str) -> KeyProvider:
    """Return this process's keys. Raises `SettingsError`, naming who needs them, if it has none."""
    ring = current()
    if ring is None:
        raise SettingsError(
            f"{whose} is sealed, and this process has no keys; set {_VARIABLE}, or call outbox.sealing.use(ring)"
        )
    return ring
