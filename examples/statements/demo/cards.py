"""A customer's card had expired: charges wait as dead letters, the card is renewed, a person has them tried again."""

import httpx

from outbox import DeadFilter, preview_redrive, redrive
from statements.accounts import Accounts
from statements.database import open_engine
from statements.demo.director import Director
from statements.demo.plan import DemoError

_CANARY = 1
_WHY = "the customer has renewed the card"


def expired_account(accounts: Accounts) -> str:
    """Return the account whose card has expired: the first one."""
    return next(iter(accounts)).account_id


def renew_and_redrive(show: Director, remotes_url: str, account_id: str) -> int:
    """Renew the card, redrive what failed for it, and see everything end. Returns how many jobs were redriven.

    Raises DemoError if nothing had failed, or if something failed again.
    """
    failed = show.observer.failed()
    if not failed:
        raise DemoError(f"no charge failed, though the card of {account_id} has expired")
    show.say(f"{len(failed)} charges wait as dead letters (card_expired); {_WHY.removeprefix('the ')}")
    answer = httpx.put(
        f"{remotes_url}/accounts/{account_id}/card", json={"valid": True}, timeout=show.plan.step_s, trust_env=False
    )
    answer.raise_for_status()
    engine = open_engine(show.stage.database_url, pool_size=1)
    try:
        with engine.begin() as connection:
            choice = DeadFilter(code="card_expired")
            seen = preview_redrive(connection, where=choice)
            redrive(connection, where=choice, by="outbox demo", reason=_WHY, acknowledge=seen.token, canary=_CANARY)
    finally:
        engine.dispose()
    show.say(f"redriving them: {_CANARY} goes first, the others follow once it has ended well")
    show.wait_for(lambda _: not show.observer.failed(), "the dead letters to be redriven", show.plan.drain_s)
    show.wait_for(lambda now: now.following == 0, "the redriven jobs to end", show.plan.drain_s)
    if again := show.observer.failed():
        raise DemoError(f"{len(again)} jobs failed again after the redrive")
    show.say(f"all {len(failed)} of them are charged now, and the customer is told")
    return len(failed)
