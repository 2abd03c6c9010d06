"""The images' description: what a linter says, what goes in by which hash, and what may never be in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.composing import COMPOSE

DOCKERFILE = COMPOSE / "Dockerfile"
ROOT = COMPOSE.parent
LOCKS = sorted((COMPOSE / "image").glob("*.lock"))


def _stages() -> dict[str, str]:
    """Return the instructions of each stage by its name."""
    found = re.split(r"^FROM \S+ AS (\S+)$", DOCKERFILE.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def test_the_linter_has_nothing_to_say() -> None:
    """hadolint, at its strictest."""
    linter = Path(sys.executable).parent / "hadolint"
    if not linter.exists():
        pytest.skip("hadolint has no wheel for this machine")
    told = subprocess.run(
        [linter, "--failure-threshold", "style", DOCKERFILE], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout


@pytest.mark.parametrize("stage", ["runtime", "example"])
def test_an_image_runs_as_nobody_and_is_told_to_end(stage: str) -> None:
    """The last user has no name and no rights."""
    text = _stages()[stage]
    assert re.findall(r"^USER (\S+)$", text, re.MULTILINE)[-1] == "10001:10001"
    if stage == "runtime":
        assert "STOPSIGNAL SIGTERM" in text
        assert "http://127.0.0.1:9464/live" in text
        assert "pip" not in text


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_whatever_is_installed_has_a_hash_and_the_version_that_is_tested(lock: Path) -> None:
    """The locks of the images are parts of the one by which this environment was made."""
    pins = re.findall(r"^([a-z0-9-]+==\S+)", lock.read_text(), re.MULTILINE)
    assert pins
    known = set(re.findall(r"^([a-z0-9-]+==\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    assert set(pins) <= known
    assert len(re.findall(r"^[a-z0-9-]+==.*\\\n {4}--hash=sha256:", lock.read_text(), re.MULTILINE)) == len(pins)
    assert f"image/{lock.name}" in DOCKERFILE.read_text()
    assert DOCKERFILE.read_text().count("--require-hashes") == len(LOCKS)


def test_a_build_is_given_what_it_copies_and_no_more() -> None:
    """Everything is shut out, and then let in by name; nothing that is let in is missing."""
    lines = [
        line for line in (COMPOSE / "Dockerfile.dockerignore").read_text().splitlines() if not line.startswith("#")
    ]
    assert lines[0] == "*"
    let_in = [line[1:] for line in lines if line.startswith("!")]
    assert all(list(ROOT.glob(name)) for name in let_in)
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
    wanted = {name.rstrip("/") for line in copied for name in line.split()}
    assert wanted == {"compose/image" if name.startswith("compose/image") else name for name in let_in}
