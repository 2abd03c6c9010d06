"""`make rehearse`: follows every runbook to its end on real servers; a line for each, exit code 1 if one fails."""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Sequence

from rehearse.following import Play, follow
from rehearse.pages import slugs
from rehearse.world import ground, shop
from support.ground import CannotBeMade, Ground, NotInTime

__all__ = ["main", "play_of"]


def play_of(slug: str) -> Play:
    """Return the rehearsal of a page; its module has the page's name."""
    play = importlib.import_module(f"rehearse.plays.{slug.replace('-', '_')}").PLAY
    assert isinstance(play, Play)
    return play


def main(arguments: Sequence[str]) -> int:
    """Rehearse the pages that are asked for, and return 1 if one does not go as it says."""
    parser = argparse.ArgumentParser(description="Follow the runbooks on real servers.")
    parser.add_argument("--only", metavar="NAME", help="those with this in their name")
    parser.add_argument("--list", action="store_true", help="print the names")
    options = parser.parse_args(arguments)
    chosen = [slug for slug in slugs() if options.only is None or options.only in slug]
    if options.list or not chosen:
        print("\n".join(chosen) or f"no runbook has {options.only} in its name")
        return 0 if chosen else 2
    began = time.monotonic()
    with ground() as servers:
        failed = sum(not _rehearsed(slug, servers) for slug in chosen if not play_of(slug).own_servers)
    for slug in chosen:
        if play_of(slug).own_servers:
            with ground() as servers:
                failed += not _rehearsed(slug, servers)
    print(f"{len(chosen)} runbooks, {failed} failed, in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


def _rehearsed(slug: str, servers: Ground) -> bool:
    began = time.monotonic()
    try:
        with shop(servers) as made:
            follow(slug, play_of(slug), made)
    except NotInTime as failure:
        print(f"FAILED  {slug}: {failure}", flush=True)
        return False
    except CannotBeMade as lack:
        print(f"skipped {slug}: {lack}", flush=True)
        return True
    print(f"held    {slug} in {time.monotonic() - began:.0f} s", flush=True)
    return True
