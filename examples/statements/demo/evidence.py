"""Collecting what the verdict rests on: rows, objects, and what the consumers say of their late writes."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from statements.demo.load import Load
from statements.demo.observe import Observer
from statements.demo.stage import Stage
from statements.demo.verdict import Document, Evidence, Issued
from statements.store import FolderStore, ObjectCorruptError

STALE_EVENT = "stale write refused"


def gather(observer: Observer, load: Load, stage: Stage) -> Evidence:
    """Read everything once; the processes have ended."""
    return Evidence(
        accepted=list(load.accepted),
        jobs=observer.jobs(),
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
    )


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
