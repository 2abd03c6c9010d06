"""What `pip install outbox-relay` brings is enough for what it promises, though this environment holds much more."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import pytest
from packaging.requirements import Requirement


def _name(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()


def _closure(requirement: str) -> set[str]:
    """Return the distributions that installing a requirement brings, by the metadata of what is installed here."""
    found: set[str] = set()
    waiting = [Requirement(requirement)]
    seen: set[tuple[str, str]] = set()
    while waiting:
        item = waiting.pop()
        for extra in sorted(item.extras) or [""]:
            if (_name(item.name), extra) in seen:
                continue
            seen.add((_name(item.name), extra))
            try:
                needs = requires(item.name) or []
            except PackageNotFoundError:
                continue
            found.add(_name(item.name))
            for text in needs:
                need = Requirement(text)
                if need.marker is None or need.marker.evaluate({"extra": extra}) or need.marker.evaluate({"extra": ""}):
                    waiting.append(need)
    return found


_BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocker())
"""


def _run_with(distributions: set[str], statement: str) -> subprocess.CompletedProcess[str]:
    """Run a statement in a fresh interpreter in which only the modules of these distributions exist."""
    blocked = {
        name
        for name, owners in packages_distributions().items()
        if not {_name(owner) for owner in owners} & (distributions | {"outbox-relay", "pip", "setuptools"})
    }
    script = _BLOCKER.format(blocked=blocked) + statement
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("extra", "statement"),
    [
        ("", "import outbox, outbox.migrations, outbox_schemas, outbox.cli.root"),
        ("", "from outbox import enqueue_async"),
        ("", "from outbox_consumer import Handler, AsyncHandler, RetryPolicy"),
        ("[relay]", "import outbox_relay.process"),
        ("[consumer]", "import outbox_consumer.runtime, outbox_consumer.cli"),
    ],
)
def test_what_is_imported_is_installed(extra: str, statement: str) -> None:
    """Each import works with nothing but what the installation in question brings."""
    done = _run_with(_closure(f"outbox-relay{extra}"), statement)
    assert done.returncode == 0, done.stderr


def test_the_blocker_blocks() -> None:
    """The base installation has no broker client, and this test would notice if it needed one."""
    assert "pika" in _run_with(_closure("outbox-relay"), "import outbox_consumer.runtime").stderr


def test_greenlet_comes_with_the_base() -> None:
    """SQLAlchemy's asyncio modules need greenlet, which it no longer brings by itself."""
    assert "greenlet" in _closure("outbox-relay")
    assert "pika" not in _closure("outbox-relay")
