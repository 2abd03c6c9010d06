"""`outbox purge`: erase what has been kept long enough, or say what that would be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import click

from outbox.cli.output import json_option, open_link, pass_settings, show
from outbox.database.link import Link
from outbox.retention.erasing import BEGINNING, Author, Rule, Stretch, preview, rules_of
from outbox.retention.erasing import purge as purge_stretch
from outbox.settings import Settings
from outbox.settings.retention import OR_NEVER, KindRetention, RetentionSettings, keep_of
from outbox.texts.actors import check_actor
from outbox.texts.wording import counted
from outbox_schemas.names import check_name

__all__ = ["purge"]

_STATES = ("succeeded", "cancelled", "failed")
_COUNTED = ("looked_at", "succeeded", "cancelled", "failed", "erased")


@click.command()
@click.option("--dry-run", is_flag=True, help="Count what would go, and change nothing.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES),
    help="With --older-than: jobs in this state (repeatable). Failed ones go only if they are named here.",
)
@click.option("--older-than", metavar="TIME", help="Instead of the settings: what ended so long ago, as 30d or 12h.")
@click.option("--kind", metavar="NAME", help="With --older-than: only jobs of this kind.")
@click.option("--payloads", is_flag=True, help="With --older-than: erase their payloads only, and keep the rows.")
@click.option("--by", metavar="WHO", help="Who asks; recorded in the audit.")
@click.option("--reason", metavar="WHY", help="Why; recorded likewise.")
@json_option
@pass_settings
def purge(
    settings: Settings,
    *,
    dry_run: bool,
    states: tuple[str, ...],
    older_than: str | None,
    kind: str | None,
    payloads: bool,
    by: str | None,
    reason: str | None,
) -> None:
    """Erase ended jobs, or their payloads, whose time is over: by the settings' [retention], or by --older-than.

    What has not ended is never touched. It goes on in small transactions; interrupted, it can simply be run again.
    """
    if older_than is None and (states or kind or payloads):
        raise click.UsageError("--state, --kind and --payloads go with --older-than")
    if not dry_run and not (by and reason):
        raise click.UsageError("say --by WHO and --reason WHY, or --dry-run")
    check_actor(by or "-", reason or "-")
    rules = rules_of(settings.retention) if older_than is None else _asked(older_than, states, kind, payloads=payloads)
    if not rules:
        raise click.UsageError("nothing is to be erased: set times in [retention], or say --older-than")
    author = None if dry_run else Author(by or "", reason or "")
    with open_link(settings, application_name="outbox-cli/purge") as link:
        sums = _walk(link, rules, settings.retention.batch, author)
    show({"dry_run": dry_run} | sums, lambda: [_line(sums, dry_run=dry_run)])


def _walk(link: Link, rules: Sequence[Rule], batch: int, author: Author | None) -> dict[str, int]:
    sums: Counter[str] = Counter(dict.fromkeys(_COUNTED, 0))
    step: Callable[..., Stretch] = preview
    options = {}
    if author is not None:
        step, options = purge_stretch, {"author": author}
    place = BEGINNING
    while True:
        stretch = step(link, rules, place, batch=batch, **options)
        sums.update({name: getattr(stretch, name) for name in _COUNTED})
        if stretch.place is None:
            return dict(sums)
        place = stretch.place


def _asked(older_than: str, states: tuple[str, ...], kind: str | None, *, payloads: bool) -> list[Rule]:
    try:
        keep = keep_of(older_than)
    except ValueError as error:
        text = str(error).removesuffix(OR_NEVER)
        raise click.BadParameter(text, param_hint="--older-than") from None
    if keep is None:
        raise click.BadParameter("must be a time, such as 30d: `never` purges nothing", param_hint="--older-than")
    names = [f"{state}{'_payload' if payloads else ''}" for state in states or ("succeeded", "cancelled")]
    asked = KindRetention.model_validate(dict.fromkeys(names, keep))
    if kind is None:
        return rules_of(RetentionSettings.model_validate(dict.fromkeys(names, keep)))
    return rules_of(RetentionSettings(kinds={check_name("kind", kind): asked}))


def _line(sums: dict[str, int], *, dry_run: bool) -> str:
    be, was = ("would be", "would be") if dry_run else ("were", "was")
    states = ", ".join(f"{sums[state]} {state}" for state in _STATES)
    erased = counted(sums["erased"], f"payload {was}", f"payloads {be}")
    return f"{states} jobs {be} purged, {erased} erased; {counted(sums['looked_at'], 'job was', 'jobs were')} looked at"
