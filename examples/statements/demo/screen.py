"""What the audience sees: events as they happen, progress under them, a table at the end."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from outbox.texts.masking import mask, printable
from statements.demo.observe import Snapshot
from statements.demo.verdict import Verdict

_EVERY_S = 5.0  # between two progress lines where nothing can be drawn over
_TAIL_LINES = 15


class Screen:
    """Writes to the terminal; `quiet` leaves standard output alone and sends events to standard error.

    `say` may be called from any thread.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console = Console(stderr=quiet, highlight=False)
        self._begin = time.monotonic()
        self._told = self._begin
        self._progress = Progress(
            TextColumn("{task.description:<22}"), BarColumn(40), MofNCompleteColumn(), console=self._console
        )
        self._requests = self._progress.add_task("requests answered", total=None)
        self._jobs = self._progress.add_task("statements finished", total=None)
        self._state = Text()
        self._live = Live(Group(self._progress, self._state), console=self._console, refresh_per_second=8)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._begin

    def say(self, text: str) -> None:
        """Show one event on one line, without secrets."""
        self._console.print(f"[dim]{self.elapsed_s:5.1f}s[/] {escape(printable(mask(text), 400))}", soft_wrap=True)

    def update(self, answered: int, of_requests: int, snapshot: Snapshot, of_jobs: int, running: str) -> None:
        """Show how far it is."""
        self._progress.update(self._requests, completed=answered, total=of_requests)
        self._progress.update(self._jobs, completed=snapshot.succeeded, total=of_jobs)
        state = f"waiting {snapshot.ready}, running {snapshot.running}, leases recovered {snapshot.recovered}"
        self._state.plain = f"{state} | {running}"
        if not self._console.is_terminal and time.monotonic() - self._told >= _EVERY_S:
            self._told = time.monotonic()
            self.say(f"answered {answered}/{of_requests}, finished {snapshot.succeeded}/{of_jobs}, {state}")

    def tail(self, name: str, text: str) -> None:
        """Show the end of a process's log, without secrets."""
        self._console.print(f"[bold]the last lines of {escape(name)}:[/]")
        for line in text.splitlines()[-_TAIL_LINES:]:
            self._console.print("  " + escape(printable(mask(line), 300)), soft_wrap=True)

    def show(self, verdict: Verdict) -> None:
        """Show the result."""
        self.close()
        if self._quiet:
            return
        self._console.print("Checked against the database and the store:")
        table = Table()
        table.add_column("what")
        table.add_column("count", justify="right")
        for name, value in verdict.rows():
            wrong = name in {"lost", "duplicated"}
            colour = "" if not wrong else "bold green" if value == 0 else "bold red"
            table.add_row(Text(name, colour), Text(str(value), colour))
        self._console.print(table)
        for reason in verdict.skipped:
            self._console.print(escape(f"skipped: {reason}"), style="yellow")
        for problem in verdict.problems[:20]:
            self._console.print(escape(problem))
        self._console.print(f"{self.elapsed_s:.0f} seconds", style="dim")

    def close(self) -> None:
        """Stop drawing; calling it again does nothing."""
        if self._live.is_started:
            self._live.stop()
