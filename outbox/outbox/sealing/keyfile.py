"""Keys from a TOML file that its owner alone can change and strangers can't read.

digest_key = "<base64>"       # openssl rand -base64 32; never changed

[keys.2026-11]
secret = "<base64>"
primary = true

[keys.acme-1]                 # a tenant's own
secret = "<base64>"
tenant = "acme"
primary = true

[digest_keys]                 # optional, to be destroyed with the tenant's keys
acme = "<base64>"
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from outbox.sealing.ring import Key, KeyRing
from outbox.texts import masking
from outbox_schemas import NameRefused, SettingsError

__all__ = ["load_keys"]

_MAX_BYTES = 1_048_576
_FIELDS = {"digest_key", "digest_keys", "keys", "seal_all"}
_KEY_FIELDS = {"secret", "primary", "tenant"}


def load_keys(path: Path) -> KeyRing:
    """Return the ring that a key file describes.

    Raises:
        SettingsError: it can't be read, others than its owner and group can read it, or it breaks a rule. The message
            names the place and never a secret.
    """
    document = _parsed(path, _content(path))
    _check_fields(document, _FIELDS, f"the key file {path}")
    tables = _table(document.get("keys", {}), path, "keys")
    try:
        ring = KeyRing(
            [_key(key_id, _table(table, path, f"keys.{key_id}"), path) for key_id, table in tables.items()],
            digest_key=_secret(document.get("digest_key"), path, "digest_key"),
            digest_keys={
                tenant: _secret(text, path, f"digest_keys.{tenant}")
                for tenant, text in _table(document.get("digest_keys", {}), path, "digest_keys").items()
            },
            seal_all=_flag(document.get("seal_all", False), path, "seal_all"),
        )
    except NameRefused as error:
        raise SettingsError(f"the key file {path}: {error}") from None
    # Nobody prints a key; should one come out all the same, it is masked. Not the tenants' keys, which may be so many
    # that they would drive out other secrets.
    for text in (document["digest_key"], *(table["secret"] for table in tables.values() if "tenant" not in table)):
        masking.register(text)
    return ring


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            _check_rights(os.fstat(file.fileno()), path)
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"the key file {path} can't be read: {error.strerror}") from None
    if len(content) > _MAX_BYTES:
        raise SettingsError(f"the key file {path} has more than {_MAX_BYTES} bytes; is it the right file?")
    return content


def _check_rights(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise SettingsError(f"the key file {path} is not a regular file")
    if found.st_mode & (stat.S_IRWXO | stat.S_IWGRP):
        mode = stat.S_IMODE(found.st_mode)
        raise SettingsError(
            f"the key file {path} has the mode {mode:04o}, so that others than its owner can read or change it; "
            "run: chmod 0400, or 0440 to share it with a group"
        )


def _parsed(path: Path, content: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError):  # also a number of more digits than Python reads, as it says of itself
        # Not the parser's words: they quote what stands there.
        raise SettingsError(f"the key file {path} is not TOML") from None


def _key(key_id: str, table: dict[str, Any], path: Path) -> Key:
    _check_fields(table, _KEY_FIELDS, f"keys.{key_id} in {path}")
    tenant = table.get("tenant")
    if tenant is not None and not isinstance(tenant, str):
        raise SettingsError(f"keys.{key_id}.tenant in {path} must be a text, not {type(tenant).__name__}")
    return Key(
        key_id,
        _secret(table.get("secret"), path, f"keys.{key_id}.secret"),
        tenant=tenant,
        primary=_flag(table.get("primary", False), path, f"keys.{key_id}.primary"),
    )


def _secret(text: object, path: Path, where: str) -> bytes:
    if not isinstance(text, str):
        problem = "is missing" if text is None else f"must be a text, not {type(text).__name__}"
        raise SettingsError(f"{where} in {path} {problem}; openssl rand -base64 32 makes one")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SettingsError(f"{where} in {path} is not base64; openssl rand -base64 32 makes one") from None


def _table(value: object, path: Path, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingsError(f"{where} in {path} must be a table, not {type(value).__name__}")
    return value


def _flag(value: object, path: Path, where: str) -> bool:
    if not isinstance(value, bool):
        raise SettingsError(f"{where} in {path} must be true or false, not {type(value).__name__}")
    return value


def _check_fields(table: dict[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(table.keys() - known)
    if unknown:
        raise SettingsError(f"{where} has an unknown field; known are {', '.join(sorted(known))}")
