"""`make fairness`: measures each claim on real servers and tells of it in one line; exits 1 where one fails."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from fairness.limits import limits_under_kills
from fairness.rates import rate_in_budget
from fairness.shares import lent_shares, mail_beside_exports, shares_by_weight
from fairness.verdicts import Verdict
from fairness.waits import small_tenants
from fairness.world import Ground, NotInTime, ground

__all__ = ["CLAIMS", "main"]

CLAIMS: tuple[Callable[[Ground], Iterator[Verdict]], ...] = (
    small_tenants,
    shares_by_weight,
    lent_shares,
    mail_beside_exports,
    limits_under_kills,
    rate_in_budget,
)


def main(arguments: Sequence[str]) -> int:
    """Measure the claims that are asked for, and return 1 if one of them fails."""
    parser = argparse.ArgumentParser(description="Measure shares, limits and waits on real servers.")
    parser.add_argument("--only", metavar="NAME", help="those with this in their name")
    parser.add_argument("--list", action="store_true", help="print the names")
    options = parser.parse_args(arguments)
    chosen = [claim for claim in CLAIMS if options.only is None or options.only in claim.__name__]
    if options.list or not chosen:
        print("\n".join(claim.__name__ for claim in chosen) or f"no claim has {options.only} in its name")
        return 0 if chosen else 2
    began = time.monotonic()
    with ground() as servers:
        verdicts = [verdict for claim in chosen for verdict in _told(claim, servers)]
    failed = sum(verdict.failed for verdict in verdicts)
    promised = sum(verdict.promised for verdict in verdicts)
    print(f"{promised} claims, {failed} failed, in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def _told(claim: Callable[[Ground], Iterator[Verdict]], servers: Ground) -> Iterator[Verdict]:
    """Print each verdict as it comes. What can't be measured has failed."""
    try:
        for verdict in claim(servers):
            print(verdict, flush=True)
            yield verdict
    except NotInTime as failure:
        print(failure, file=sys.stderr)
        verdict = Verdict(claim.__name__, str(failure).splitlines()[0], "measured", held=False)
        print(verdict, flush=True)
        yield verdict
