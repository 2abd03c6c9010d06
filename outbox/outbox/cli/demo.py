"""`outbox demo`: the worked example for real, with faults, checked at the end."""

import importlib
import sys
from pathlib import Path
from typing import Any

import click

from outbox.cli.failures import FAILED, UNREACHABLE
from outbox.cli.output import is_json, json_option, show
from outbox.servers import NoServer

PACKAGE = Path("statements", "demo")
_CHECKOUT = Path(__file__).resolve().parents[3]


class _Unreachable(click.ClickException):
    exit_code = UNREACHABLE


def find_examples(*roots: Path) -> Path | None:
    """Return the folder that holds the worked example, below one of `roots`; None if there is none."""
    for root in roots:
        folder = root / "examples"
        if (folder / PACKAGE / "__init__.py").is_file():
            return folder
    return None


@click.command()
@json_option
def demo() -> int:
    """Run the worked example with real servers, kill and pause things, and check that nothing is lost.

    Takes about a minute. Servers are found or started, and a database of its own is made and dropped; nothing
    else is touched. Exit code 1 if anything was lost or done twice.
    """
    folder = find_examples(_CHECKOUT, Path.cwd())
    if folder is None:
        raise click.ClickException(
            "the worked example is not part of the installed package; run this in a checkout of the source, "
            "which has the folder examples/statements"
        )
    module = _load(folder)
    try:
        verdict = module.run(quiet=is_json())
    except NoServer as error:
        raise _Unreachable(str(error)) from error
    except module.DemoError as error:
        raise click.ClickException(str(error)) from error
    show(verdict.as_json(), list)  # for people, the table is drawn already
    return 0 if verdict.ok else FAILED


def _load(folder: Path) -> Any:
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("statements.demo")
    except ImportError as error:
        raise click.ClickException(
            f"the worked example can't be loaded: {error}; try: pip install 'outbox-relay[all]'"
        ) from error
