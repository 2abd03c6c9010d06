"""Collecting what the verdict rests on: rows, objects, and what the consumers say of their late writes."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from statements.demo.load import Load
from statements.demo.observe import Observer
from statements.demo.stage import Stage
from statements.demo.verdict import Document, Evidence, Issued
from statements.payloads import RenderStatement
from statements.store import FolderStore, ObjectCorruptError

STALE_EVENT = "stale write refused"
_MAIL_SUBJECT = "Your statement "


def gather(observer: Observer, load: Load, stage: Stage, *, redriven: int) -> Evidence:
    """Read everything once; the processes have ended."""
    jobs = observer.jobs()
    return Evidence(
        accepted=list(load.accepted),
        jobs={job_id: state for job_id, (kind, state) in jobs.items() if kind == RenderStatement.kind},
        following=[state for kind, state in jobs.values() if kind != RenderStatement.kind],
        attempts=observer.attempts(),
        statements=[
            Issued((row.account_id, row.period, row.format_version), row.status, row.object_key, row.issue_count)
            for row in observer.statements()
        ],
        documents=[
            Document((row.account_id, row.period, row.format_version), row.object_key, row.sha256)
            for row in observer.artifacts()
        ],
        objects=read_objects(stage.store),
        stale_writes_refused=count_events((process.log for process in stage.processes), STALE_EVENT),
        charges=Counter(deed["reference"] for deed in read_ledger(stage.ledgers / "charges.jsonl")),
        mails=Counter(
            deed["subject"].removeprefix(_MAIL_SUBJECT) for deed in read_ledger(stage.ledgers / "messages.jsonl")
        ),
        charges_reconciled=observer.reconciled(),
        dead_letters_redriven=redriven,
    )


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """Return what a remote service has really done."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_objects(folder: Path) -> dict[str, str | None]:
    """Return the checksum of every object as its bytes are now; None for an incomplete or damaged one."""
    store = FolderStore(folder)
    found: dict[str, str | None] = {}
    for path in folder.rglob("*.pdf"):
        key = path.relative_to(folder).as_posix()
        try:
            found[key] = hashlib.sha256(store.get(key)).hexdigest()
        except (KeyError, ObjectCorruptError):
            found[key] = None
    return found


def count_events(logs: Iterable[Path], event: str) -> int:
    """Count an event in logs of JSON lines."""
    count = 0
    for log in logs:
        for line in log.read_text(errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and entry.get("event") == event:
                count += int(entry.get("count", 1))
    return count
