"""Output that can't be written, and input that is no text: told, with an exit code of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from outbox.cli.root import cli, run

BIG = """
import click
from outbox.cli import root
from outbox.cli.output import json_option, show
@root.cli.command()
@json_option
def big():
    show(["x" * 50] * 100_000, lambda: ["x" * 50] * 100_000)
root.main()
"""


def shell(command: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command of bash in which `outbox …` is the program, and `big` one with megabytes to say."""
    program = (
        f'big() {{ \'{sys.executable}\' -c "$BIG" big "$@"; }}; outbox() {{ \'{sys.executable}\' -m outbox "$@"; }}'
    )
    return subprocess.run(
        ["bash", "-c", f"{program}; {command}", "bash", *arguments],
        env=os.environ | {"BIG": BIG} | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("options", ["", "--json"])
def test_a_reader_that_leaves_in_the_middle_is_noticed(options: str, unbuffered: str) -> None:
    """However the output is written, in one piece or line by line: what is cut off is not taken for whole."""
    done = shell(f"big {options} | head -c 10; exit ${{PIPESTATUS[0]}}", PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, len(done.stdout), done.stderr) == (141, 10, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_everything_arrives(unbuffered: str) -> None:
    """A slow reader gets every byte."""
    done = shell("big | wc -c; exit ${PIPESTATUS[0]}", PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "5100000", "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(("where", "why"), [("> /dev/full", "No space left"), (">&-", "Bad file descriptor")])
def test_output_that_is_lost_is_told(where: str, why: str, unbuffered: str) -> None:
    """A full disk or a closed stdout: one line, and a code that is documented."""
    done = shell(f"outbox --version {where}", PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 5
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"Error: the output can't be written: {why}")


@pytest.mark.parametrize("where", ["2>&-", "2> /dev/full", "<&- >&- 2>&-"])
def test_an_error_that_nobody_hears_keeps_its_code(where: str) -> None:
    """With stderr closed or full the exit code is what it is otherwise."""
    assert shell(f"outbox nosuch {where}").returncode == 2


def test_a_closed_stream_is_no_place_for_a_connection() -> None:
    """The numbers of closed streams are given to no file that is opened later."""
    program = (
        "import os\nfrom outbox.cli.streams import take_streams\ntake_streams()\nos._exit(os.open('/dev/null', 0))"
    )
    assert shell(f"'{sys.executable}' -c \"$PROGRAM\" <&- >&- 2>&-", PROGRAM=program).returncode > 2


@pytest.mark.parametrize("text", ["\udc80", "a\x00b"])
@pytest.mark.parametrize("option", ["--kind", "--queue", "--tenant", "--correlation", "--before"])
def test_arguments_that_are_no_text_are_refused(capsys: pytest.CaptureFixture[str], option: str, text: str) -> None:
    """Before a server is asked, with the place and without the bytes."""
    assert run(["jobs", "list", option, text]) == 2
    assert "argument 4" in capsys.readouterr().err


def test_bytes_of_another_encoding_are_refused(tmp_path: Path) -> None:
    """As a shell hands them over."""
    done = shell("outbox jobs list --kind $'\\x80'")
    assert done.returncode == 2
    assert "argument 4" in done.stderr


def options_of(command: click.Command) -> Iterator[tuple[str, click.Parameter]]:
    """Yield every parameter of a command and of those below it."""
    for parameter in command.params:
        yield f"{command.name} {parameter.name}", parameter
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None
            yield from options_of(below)


@pytest.mark.parametrize("word", ["nan", "inf", "-inf"])
def test_no_option_takes_what_is_no_number(word: str) -> None:
    """`nan` passes every comparison with a limit: no option of any command takes it, or infinity."""
    numbers = [(name, one) for name, one in options_of(cli) if isinstance(one.type, click.types.FloatParamType)]
    assert len(numbers) >= 6
    for _, one in numbers:
        with pytest.raises(click.BadParameter):
            one.type.convert(word, one, None)
