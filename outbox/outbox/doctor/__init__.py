"""The doctor: looks for what must never be in the data and for what keeps it from moving, and mends what is safe to."""

from outbox.doctor.checks import CHECKS, Check, Severity, Walk
from outbox.doctor.examining import examine
from outbox.doctor.mending import Mended, mend
from outbox.doctor.report import Disorder, Limits, Report, Sample

__all__ = [
    "CHECKS",
    "Check",
    "Disorder",
    "Limits",
    "Mended",
    "Report",
    "Sample",
    "Severity",
    "Walk",
    "examine",
    "mend",
]
