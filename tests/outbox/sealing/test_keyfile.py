"""The key file: what it may say, who may read it, and what its errors keep to themselves."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from outbox.sealing import current, load_keys, use
from outbox.sealing.using import required, seals_all, use_file
from outbox.settings import load
from outbox.texts.masking import forget_all, mask
from outbox_schemas import SettingsError
from support.sealing import secret


def b64(name: str) -> str:
    """Return a secret as the file has it."""
    return base64.b64encode(secret(name)).decode()


GOOD = f"""
digest_key = "{b64("digest")}"
[keys.2026-11]
secret = "{b64("new")}"
primary = true
[keys.2026-05]
secret = "{b64("old")}"
[keys.acme-1]
secret = "{b64("acme")}"
tenant = "acme"
primary = true
[digest_keys]
acme = "{b64("acme digest")}"
"""


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    """Write a key file."""
    file = path / "keys.toml"
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)
    return file


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.delenv("OUTBOX_KEYS_FILE", raising=False)
    use(None)
    yield
    use(None)
    forget_all()


def test_a_good_file(tmp_path: Path) -> None:
    """All that it may say is understood."""
    ring = load_keys(write(tmp_path, GOOD, 0o440))
    assert set(ring.key_ids()) == {"2026-11", "2026-05", "acme-1"}
    assert (ring.primary("default").id, ring.primary("acme").id) == ("2026-11", "acme-1")
    assert (ring.digest_key("default"), ring.digest_key("acme")) == (secret("digest"), secret("acme digest"))
    assert not ring.seal_all
    assert load_keys(write(tmp_path, "seal_all = true\n" + GOOD)).seal_all
    assert mask(f"x {b64('new')} y") == "x *** y"


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o601, 0o644])
def test_a_file_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    """The message says how it is and what to do."""
    with pytest.raises(SettingsError, match=rf"mode 0{mode:o}.*chmod"):
        load_keys(write(tmp_path, GOOD, mode))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("digest_key", "digest_kee"), "unknown field; known are digest_key"),
        (("primary = true", 'primary = "yes"'), "must be true or false"),
        (("primary = true", ""), "0 keys .* are primary"),
        (("secret = ", "secrets = "), "unknown field"),
        ((b64("new"), "canary-secret"), "keys.2026-11.secret in .* is not base64"),
        ((b64("new"), base64.b64encode(b"canary-secret").decode()), "not 13 bytes"),
        ((f'"{b64("new")}"', "5"), "must be a text, not int"),
        (('"acme"\n', '"a me"\n'), "tenant"),
        (("[keys.2026-11]", "[keys.'2026 11']"), "key id"),
        (("[keys.2026-11]\n", ""), "unknown field"),
        (('secret = "', "secret = canary-secret"), "is not TOML"),
        ((f'"{b64("new")}"', "1" * 5_000), "is not TOML"),
        (("[digest_keys]", "[digest_keys.x]"), "must be a text, not dict"),
        ((GOOD, "keys = 5"), "keys in .* must be a table"),
        ((GOOD, ""), "keys|digest_key"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, change: tuple[str, str], problem: str) -> None:
    """Each mistake is named with its place, and no secret is repeated."""
    with pytest.raises(SettingsError, match=problem) as raised:
        load_keys(write(tmp_path, GOOD.replace(*change)))
    assert not any(text in str(raised.value) for text in ("canary-secret", b64("new"), b64("old"), b64("digest")))


def test_a_missing_file_or_a_directory(tmp_path: Path) -> None:
    """What can't be read at all is said so."""
    with pytest.raises(SettingsError, match="can't be read"):
        load_keys(tmp_path / "none")
    with pytest.raises(SettingsError, match="can't be read"):
        load_keys(tmp_path)


def test_where_a_process_finds_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the program gives wins; else the environment's file counts, and a broken one is no empty ring."""
    assert current() is None
    with pytest.raises(SettingsError, match="Note is sealed, and this process has no keys"):
        required("Note")
    monkeypatch.setenv("OUTBOX_KEYS_FILE", str(write(tmp_path, "seal_all = true\n" + GOOD)))
    use(None)
    assert seals_all()
    own = load_keys(write(tmp_path, GOOD))
    use(own)
    use_file(tmp_path / "not even there")
    assert current() is own
    assert not seals_all()
    write(tmp_path, "keys = 5")
    use(None)
    for _ in range(2):
        with pytest.raises(SettingsError):
            seals_all()


def test_settings_name_the_file(tmp_path: Path) -> None:
    """The environment and the TOML file have the same setting."""
    assert load(env={}).keys_file is None
    assert load(env={"OUTBOX_KEYS_FILE": "/etc/keys.toml"}).keys_file == Path("/etc/keys.toml")
    config = tmp_path / "outbox.toml"
    config.write_text('keys_file = "/etc/keys.toml"')
    assert load(config, env={}).keys_file == Path("/etc/keys.toml")
