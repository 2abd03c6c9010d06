"""`outbox doctor`: look for what must never be in the data, and for what keeps it from moving; mend what can be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from outbox.cli.amounts import Amount
from outbox.cli.failures import FAILED
from outbox.cli.output import json_option, pass_settings, show
from outbox.doctor import Disorder, Limits, Mended, Report, examine, mend
from outbox.doctor.report import SAMPLES
from outbox.settings import Settings
from outbox.texts.masking import masked_line

__all__ = ["doctor"]

LINE_LIMIT = 300
APPLICATION = "outbox-doctor"


@click.command()
@click.option("--fix", is_flag=True, help="Show what would be mended; with --yes, mend it.")
@click.option("--yes", is_flag=True, help="Really mend it; needs --by and --reason.")
@click.option("--by", metavar="WHO", help="Who mends; recorded in the audit.")
@click.option("--reason", metavar="WHY", help="Why; recorded likewise.")
@click.option(
    "--within",
    "within_s",
    type=Amount(1, 86_400),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="How long it may take; what was not looked at by then is named.",
)
@json_option
@pass_settings
def doctor(settings: Settings, *, fix: bool, yes: bool, by: str | None, reason: str | None, within_s: float) -> int:
    """Check the data, and what moves it. Without --fix --yes nothing is changed.

    Exit code 0: all is well. 1: something was found, or could not be looked at. --fix mends only what can be put right
    from the job itself; each repair is checked again under the row's locks and audited.
    """
    if yes and not fix:
        raise click.UsageError("--yes goes with --fix")
    if yes and (by is None or reason is None):
        raise click.UsageError("--fix --yes needs --by WHO and --reason WHY; they are recorded")
    engine = settings.engine(APPLICATION, pool_size=1, max_overflow=0)
    schema, limits = settings.schema_name, Limits(within_s=within_s)
    done: list[Mended] = []
    try:
        if by is not None and reason is not None and yes:
            _, done = mend(engine, by=by, reason=reason, schema=schema, limits=limits)
        report = examine(engine, schema=schema, limits=limits)
    finally:
        engine.dispose()
    show(_data(report, done, mended=yes), lambda: _lines(report, done, fix=fix and not yes))
    return 0 if report.healthy else FAILED


def _data(report: Report, done: list[Mended], *, mended: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "schema": report.schema,
        "healthy": report.healthy,
        "at": report.at,
        "disorders": [_disorder(found) for found in report.disorders],
        "clean": report.clean,
        "unfinished": report.unfinished,
    }
    return data | {"mended": [asdict(item) for item in done]} if mended else data


def _disorder(found: Disorder) -> dict[str, Any]:
    return {
        "code": found.check.code,
        "severity": found.check.severity,
        "title": found.check.title,
        "count": found.count,
        "more": found.more,
        "remedy": found.check.remedy,
        "mendable": found.check.mend is not None,
        "samples": [asdict(case) for case in found.cases[:SAMPLES]],
    }


def _lines(report: Report, done: list[Mended], *, fix: bool) -> Iterator[str]:
    for item in done:
        yield f"mended: {item.code}: {item.count} of {item.found}"
    for found in report.disorders:
        yield from _disorder_lines(found, fix=fix)
    for code, reason in report.unfinished.items():
        yield masked_line(f"not looked at: {code}: {reason}", LINE_LIMIT)
    if report.healthy:
        yield f"all is well: {len(report.clean)} checks found nothing"
    else:
        yield f"{len(report.clean)} other checks found nothing"


def _disorder_lines(found: Disorder, *, fix: bool) -> Iterator[str]:
    check = found.check
    count = f"{found.count} or more" if found.more else str(found.count)
    yield f"{check.severity}: {check.code}: {check.title} ({count})"
    for case in found.cases[:SAMPLES]:
        yield "  " + masked_line(f"{case.subject}: {case.detail}", LINE_LIMIT)
    if found.count > SAMPLES:
        yield "  …"
    if check.mend is None:
        yield f"  what to do: {check.remedy}"
    else:
        yield f"  {'--yes would mend it' if fix else '--fix mends it'}: {check.remedy}"
