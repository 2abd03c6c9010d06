"""The rows of the table of metrics."""

from __future__ import annotations

from outbox.telemetry.metric_terms import Kind, Metric

__all__ = ["METRICS", "ONE_RELAY"]

# From what a job that only touches memory takes to what holds a lease for a while.
_RUN_S = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 600.0)
_WRITE_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0)
# A heartbeat tells of a cancel, and these come every third of the shortest lease.
_CANCEL_S = (0.5, 2.5, 10.0, 60.0)
# From a relay that is woken at once to a queue that drains for hours.
_WAIT_S = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 600.0)

_BOTH, _RELAY, _CONSUMER = "relay, consumer", "relay", "consumer"
ONE_RELAY = "one relay"
"""By whom that is shown which is in the tables: by one for all."""

METRICS: tuple[Metric, ...] = (
    Metric("outbox.process.uptime", Kind.GAUGE, "s", _BOTH, "seconds since the process started"),
    Metric("outbox.process.threads", Kind.GAUGE, "{thread}", _BOTH, "threads of the process, all of them"),
    Metric("outbox.process.spans", Kind.COUNTER, "{span}", _BOTH, "ended spans", ("spans",)),
    Metric("outbox.broker.away", Kind.GAUGE, "s", _BOTH, "for how long the broker has been away; 0 while it is there"),
    Metric(
        "outbox.broker.absent",
        Kind.COUNTER,
        "s",
        _BOTH,
        "for how long in all the broker has been away; of a consumer, for how long it has had to do without hints",
    ),
    Metric(
        "outbox.progress.stuck",
        Kind.GAUGE,
        "s",
        _BOTH,
        "for how long a part has been stuck, as `/progress` tells; 0 while it is not",
        ("part",),
    ),
    Metric("outbox.relay.hints", Kind.COUNTER, "{hint}", _RELAY, "hints, by what became of them", ("hint",)),
    Metric("outbox.relay.moves", Kind.COUNTER, "{move}", _RELAY, "what a relay did to jobs and rows", ("move",)),
    Metric("outbox.relay.unconfirmed", Kind.GAUGE, "{message}", _RELAY, "messages that await the broker's confirm"),
    Metric(
        "outbox.relay.confirm.duration",
        Kind.HISTOGRAM,
        "s",
        _RELAY,
        "from handing a message to the publisher to its confirm",
        bounds=_WRITE_S,
    ),
    Metric("outbox.relay.broker.connections", Kind.COUNTER, "{connection}", _RELAY, "connections made to the broker"),
    Metric("outbox.relay.broker.blocked", Kind.COUNTER, "s", _RELAY, "for how long the broker has blocked the relay"),
    Metric(
        "outbox.relay.runway",
        Kind.GAUGE,
        "{hint}",
        _RELAY,
        "how many hints of a queue may be out, where some were due within the last minute",
        ("queue",),
    ),
    Metric("outbox.consumer.hints", Kind.COUNTER, "{hint}", _CONSUMER, "hints, by what became of them", ("hint",)),
    Metric(
        "outbox.consumer.events",
        Kind.COUNTER,
        "{event}",
        _CONSUMER,
        "claims, ends of attempts, lost leases and refused writes",
        ("event",),
    ),
    Metric(
        "outbox.consumer.ended",
        Kind.COUNTER,
        "{job}",
        _CONSUMER,
        "jobs that have ended here for good: succeeded or failed",
        ("queue",),
    ),
    Metric(
        "outbox.consumer.failures",
        Kind.COUNTER,
        "{attempt}",
        _CONSUMER,
        "attempts that did not succeed, by their code and what followed",
        ("kind", "code", "outcome"),
    ),
    Metric(
        "outbox.consumer.release.delay",
        Kind.HISTOGRAM,
        "s",
        _CONSUMER,
        "of each claim: from when its job was due, submitted or given up by an attempt, whichever came last, until its"
        " hint went out",
        bounds=_WAIT_S,
    ),
    Metric(
        "outbox.consumer.claim.delay",
        Kind.HISTOGRAM,
        "s",
        _CONSUMER,
        "and from then until it was claimed",
        bounds=_WAIT_S,
    ),
    Metric(
        "outbox.consumer.handle.duration",
        Kind.HISTOGRAM,
        "s",
        _CONSUMER,
        "from the start of an attempt until its handler, and `apply` where there is one, has returned or raised",
        ("queue", "kind"),
        _RUN_S,
    ),
    Metric(
        "outbox.consumer.end.duration",
        Kind.HISTOGRAM,
        "s",
        _CONSUMER,
        "the writing of a batch of attempts' ends",
        bounds=_WRITE_S,
    ),
    Metric(
        "outbox.consumer.slots", Kind.GAUGE, "{slot}", _CONSUMER, "slots, by the first queue that has them", ("queue",)
    ),
    Metric(
        "outbox.consumer.running", Kind.GAUGE, "{attempt}", _CONSUMER, "attempts that run in these slots", ("queue",)
    ),
    Metric(
        "outbox.consumer.waiting",
        Kind.GAUGE,
        "{attempt}",
        _CONSUMER,
        "attempts claimed ahead, which wait for one of these slots",
        ("queue",),
    ),
    Metric(
        "outbox.consumer.utilisation",
        Kind.GAUGE,
        "1",
        _CONSUMER,
        "the part of all slots in which an attempt runs, from 0 to 1",
    ),
    Metric(
        "outbox.consumer.cancel.delay",
        Kind.HISTOGRAM,
        "s",
        _CONSUMER,
        "from the cancel of a job that runs here until its attempt is told",
        bounds=_CANCEL_S,
    ),
    Metric(
        "outbox.submissions.refused",
        Kind.COUNTER,
        "{submission}",
        _CONSUMER,
        "submissions by its handlers that a full queue refused",
    ),
    Metric("outbox.consumer.leases", Kind.GAUGE, "{lease}", _CONSUMER, "leases held"),
    Metric(
        "outbox.consumer.heartbeat.age", Kind.GAUGE, "s", _CONSUMER, "how long ago the last round of heartbeats ended"
    ),
    Metric(
        "outbox.consumer.connections",
        Kind.GAUGE,
        "{connection}",
        _CONSUMER,
        "database connections in use by handlers and completions",
        ("pool",),
    ),
    Metric(
        "outbox.consumer.connections.limit",
        Kind.GAUGE,
        "{connection}",
        _CONSUMER,
        "how many there may be",
        ("pool",),
    ),
    *(
        Metric(f"outbox.queue.{name}", Kind.GAUGE, unit, ONE_RELAY, about, ("queue",), largest=largest)
        for name, unit, about, largest in (
            ("ready", "{job}", "jobs that are due and not started, paused ones included; at least so many", False),
            ("scheduled", "{job}", "jobs that wait for their time; 10,000 stands for that and more", False),
            ("running", "{attempt}", "attempts that hold a lease", False),
            (
                "oldest.due",
                "s",
                "for how long the longest waiting job has been due and not started; 0 while the queue is paused",
                True,
            ),
            ("submitted.rate", "{job}/s", "jobs submitted a second", False),
            ("ended.rate", "{job}/s", "jobs ended a second, as consumers told last", False),
            ("lateness.mean", "s", "how long after their time those that ran lately were started, on average", True),
            ("lateness.most", "s", "the most of it", True),
            ("release.mean", "s", "of this, how long after they were due their hints went out, on average", True),
            ("claim.mean", "s", "and how long after that they were claimed, on average", True),
            (
                "fill",
                "1",
                "its backlog, or age, as a part of its bound, the largest of it and its tenants; from 1 on it is full",
                True,
            ),
            ("drain", "s", "in how long all that is ready has ended, if nothing is added and the rate stays", True),
        )
    ),
    Metric("outbox.pauses", Kind.GAUGE, "{pause}", ONE_RELAY, "pauses in force: of queues, kinds, tenants, everything"),
    *(
        Metric(f"outbox.kind.{name}", Kind.GAUGE, unit, ONE_RELAY, f"{about}, by kind: an estimate", ("queue", "kind"))
        for name, unit, about in (
            ("ready", "{job}", "jobs that are due and not started"),
            ("scheduled", "{job}", "jobs that wait for their time"),
            ("running", "{attempt}", "attempts that hold a lease"),
        )
    ),
    Metric(
        "outbox.dead_letters",
        Kind.GAUGE,
        "{job}",
        ONE_RELAY,
        "failed jobs that wait for a person, of the latest 10,000",
        ("queue", "kind"),
    ),
    Metric(
        "outbox.dead_letters.rate",
        Kind.GAUGE,
        "{job}/s",
        ONE_RELAY,
        "failed jobs that came to wait for a person in the last minute, a second",
    ),
    Metric(
        "outbox.cancelled.rate",
        Kind.GAUGE,
        "{job}/s",
        ONE_RELAY,
        "jobs cancelled in the last minute, a second; without those that a newer job superseded",
    ),
    Metric(
        "outbox.effects.open",
        Kind.GAUGE,
        "{effect}",
        ONE_RELAY,
        "effects whose outcome is not known, of the oldest 10,000; of a job that runs they may be on their way",
        ("state",),
    ),
    Metric(
        "outbox.schedules.lag",
        Kind.GAUGE,
        "s",
        ONE_RELAY,
        "for how long the turn of a schedule has been due; of one that catches up, how old is what it makes next",
    ),
    Metric("outbox.redrives.left", Kind.GAUGE, "{job}", ONE_RELAY, "jobs that running redrives have still to look at"),
    Metric(
        "outbox.redrives.done", Kind.GAUGE, "{job}", ONE_RELAY, "jobs that running redrives have put back or refused"
    ),
    Metric("outbox.processes", Kind.GAUGE, "{process}", ONE_RELAY, "processes seen within a minute", ("role",)),
    Metric(
        "outbox.database.oldest.transaction",
        Kind.GAUGE,
        "s",
        ONE_RELAY,
        "for how long the oldest transaction has been open that keeps PostgreSQL from cleaning up; without"
        " pg_read_all_stats, of the relay's own user",
    ),
    Metric(
        "outbox.database.dead_rows",
        Kind.GAUGE,
        "{row}",
        ONE_RELAY,
        "dead row versions, as PostgreSQL's statistics say",
        ("table",),
    ),
    Metric(
        "outbox.database.clock.ahead",
        Kind.GAUGE,
        "s",
        ONE_RELAY,
        "by how much the database's clock is ahead of this machine's; negative where it is behind",
    ),
    Metric("outbox.gauges.age", Kind.GAUGE, "s", ONE_RELAY, "how old these figures of the tables are"),
)
