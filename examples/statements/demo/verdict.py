"""The end of the demonstration: what was promised, against what is there."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from statements.demo.load import Accepted, Key


@dataclass(frozen=True, slots=True)
class Issued:
    """One row of `statements`."""

    key: Key
    status: str
    object_key: str | None
    issue_count: int


@dataclass(frozen=True, slots=True)
class Document:
    """One row of `statement_artifacts`."""

    key: Key
    object_key: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that the verdict rests on."""

    accepted: Collection[Accepted]
    jobs: Mapping[UUID, str]
    """State of every rendering."""
    following: Collection[str]
    """State of every job that follows from one."""
    attempts: Collection[tuple[UUID, str]]
    """Job and outcome of every ended attempt."""
    statements: Collection[Issued]
    documents: Collection[Document]
    objects: Mapping[str, str | None]
    """Checksum of every object in the store as it reads now; None if it is incomplete or damaged."""
    stale_writes_refused: int
    charges: Mapping[str, int]
    """What the payment provider has on its ledger for each statement."""
    mails: Mapping[str, int]
    """What the mail relay has on its ledger for each statement."""
    charges_reconciled: int = 0
    dead_letters_redriven: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The final table. `lost` and `duplicated` count statements; `problems` says which, and why.

    A mail that was sent again is no duplicate: its relay can't tell, and the handler says that twice is better.
    """

    submitted: int
    statements: int
    jobs: int
    attempts: int
    leases_recovered: int
    stale_writes_refused: int
    artifacts: int
    charges: int
    charges_reconciled: int
    dead_letters_redriven: int
    mails: int
    mails_sent_again: int
    lost: int
    duplicated: int
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Faults that this run did without, each with the reason."""

    @property
    def ok(self) -> bool:
        """Tell whether nothing was lost and nothing was done twice."""
        return self.lost == 0 and self.duplicated == 0

    def rows(self) -> list[tuple[str, int]]:
        """Return the table for people, in its order."""
        return [(name.replace("_", " "), value) for name, value in asdict(self).items() if isinstance(value, int)]

    def as_json(self) -> dict[str, Any]:
        """Return the table for machines."""
        return {"ok": self.ok, **asdict(self)}


def judge(evidence: Evidence) -> Verdict:
    """Count what was promised and is not there, and what is there more than once.

    Lost: an accepted statement without a succeeded job, a pointer, an artifact row, an intact object, a charge at the
    provider, or a mail.
    Duplicated: a second job, a second success, a second `apply` or a second charge for one statement; an object or a
    job that nobody asked for.
    """
    lost = _lost(evidence)
    duplicated = _duplicated(evidence)
    return Verdict(
        submitted=len(evidence.accepted),
        statements=len({item.key for item in evidence.accepted}),
        jobs=len(evidence.jobs) + len(evidence.following),
        attempts=len(evidence.attempts),
        leases_recovered=sum(outcome == "lease_lost" for _, outcome in evidence.attempts),
        stale_writes_refused=evidence.stale_writes_refused,
        artifacts=len(evidence.documents),
        charges=sum(evidence.charges.values()),
        charges_reconciled=evidence.charges_reconciled,
        dead_letters_redriven=evidence.dead_letters_redriven,
        mails=sum(evidence.mails.values()),
        mails_sent_again=sum(evidence.mails.values()) - len(evidence.mails),
        lost=len(lost),
        duplicated=len(duplicated),
        problems=[*lost.values(), *duplicated.values()],
    )


def _lost(evidence: Evidence) -> dict[Key, str]:
    statements = {item.key: item for item in evidence.statements}
    documents = {item.key: item for item in evidence.documents}
    lost: dict[Key, str] = {}
    for item in evidence.accepted:
        reason = _missing(item.job_id, statements.get(item.key), documents.get(item.key), evidence)
        if reason is not None:
            lost[item.key] = f"{_name(item.key)} is lost: {reason}"
    return lost


def _missing(job_id: UUID, issued: Issued | None, document: Document | None, evidence: Evidence) -> str | None:
    if evidence.jobs.get(job_id) != "succeeded":
        return f"its job is {evidence.jobs.get(job_id, 'gone')}"
    if issued is None or issued.status != "available":
        return "it is not available"
    if document is None or issued.object_key != document.object_key:
        return "it has no artifact row, or points to another object"
    if evidence.objects.get(document.object_key) != document.sha256:
        return "its object is missing or has other bytes"
    return _not_followed(_name(document.key), evidence)


def _not_followed(name: str, evidence: Evidence) -> str | None:
    if not evidence.charges.get(name):
        return "nothing was charged for it"
    return None if evidence.mails.get(name) else "nobody was told of it"


def _duplicated(evidence: Evidence) -> dict[Any, str]:
    found: dict[Any, str] = {}
    made = Counter(item.key for item in evidence.accepted if item.created)
    jobs_of: dict[Key, set[UUID]] = {}
    for item in evidence.accepted:
        jobs_of.setdefault(item.key, set()).add(item.job_id)
    for key, jobs in jobs_of.items():
        if len(jobs) > 1 or made[key] > 1:
            found[key] = f"{_name(key)} has {max(len(jobs), made[key])} jobs"
    for issued in evidence.statements:
        if issued.issue_count > 1:
            found[issued.key] = f"{_name(issued.key)} was applied {issued.issue_count} times"
    found |= {
        f"charge {name}": f"{name} was charged {times} times" for name, times in evidence.charges.items() if times > 1
    }
    successes = Counter(job_id for job_id, outcome in evidence.attempts if outcome == "succeeded")
    found |= {job: f"job {job} succeeded {times} times" for job, times in successes.items() if times > 1}
    asked = {item.job_id for item in evidence.accepted}
    found |= {job: f"job {job} was never asked for" for job in evidence.jobs if job not in asked}
    known = {document.object_key for document in evidence.documents}
    return found | _strays(evidence.objects, known)


def _strays(objects: Iterable[str], known: set[str]) -> dict[Any, str]:
    return {key: f"object {key} belongs to no artifact row" for key in objects if key not in known}


def _name(key: Key) -> str:
    account_id, period, version = key
    return f"{account_id}/{period}/v{version}"
