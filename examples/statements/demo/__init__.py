"""The demonstration: everything for real, faults included, and a result checked against the database."""

from statements.demo.plan import DemoError
from statements.demo.run import run

__all__ = ["DemoError", "run"]
