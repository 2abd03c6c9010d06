"""What is out beyond a runway that has become shorter is taken back, once, by each relay."""

from __future__ import annotations

import pytest

from outbox.database.floors import MOST_QUEUES
from outbox.releasing.relaying import DueQueue
from outbox_relay.shortening import Shortening
from support.database import Database
from support.jobs import release_all, submit

SETTING = 5


@pytest.mark.parametrize("setting", [SETTING, 100])
def test_a_relay_that_starts_takes_back_what_is_out_beyond_a_queue_s_own_runway(
    database: Database, setting: int
) -> None:
    """Its setting says nothing of how long that runway was before, be it longer or shorter; and it does so once."""
    link = database.link("relay")
    submit(database, 40)
    assert len(release_all(link)) == 40
    shortening = Shortening(link, setting)
    due = [DueQueue("notes", 20, runway=20)]
    assert shortening.seen(due) == {"notes": 20}
    assert database.count("outbox WHERE phase = 'released'") == 20
    submit(database, 5)
    assert len(release_all(link)) == 25
    assert shortening.seen(due) == {}


def test_the_setting_alone_takes_nothing_back(database: Database) -> None:
    """Other relays may have a longer one, and what is out is theirs."""
    link = database.link("relay")
    submit(database, 10)
    release_all(link)
    assert Shortening(link, SETTING).seen([DueQueue("notes", SETTING)]) == {}


def test_however_many_queues_are_due_each_is_taken_back_from_once(database: Database) -> None:
    """Beyond the number that is remembered those that are due still are, so that no look takes them for new ones."""
    link = database.link("relay")
    submit(database, 10)
    due = [DueQueue(f"q{number}", 0, runway=3) for number in range(MOST_QUEUES + 100)] + [
        DueQueue("notes", 3, runway=3)
    ]
    shortening = Shortening(link, SETTING)
    assert shortening.seen(due) == {}
    release_all(link)
    assert shortening.seen(due) == {}
    assert shortening.seen([DueQueue("other", 0)]) == {}
    assert len(shortening._known) == 1
