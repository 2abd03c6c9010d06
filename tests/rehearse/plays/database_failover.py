"""A primary that is killed for good beside running work, and its synchronous standby, which is promoted."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from outbox.servers.cluster import START, Cluster, database_account
from outbox.servers.instance import Instance
from outbox.settings.urls import sqlalchemy_engine
from rehearse.following import Play
from rehearse.work import Charge
from rehearse.world import Shop
from support.database import Database
from support.ground import CannotBeMade
from support.invariants import check_invariants

_JOBS = 40


class _Standby(Cluster):
    """A copy that follows a primary."""

    def __init__(self, instance: Instance, bin_dir: Path, primary: str, settings: Mapping[str, str]) -> None:
        self._primary = primary
        super().__init__(instance, bin_dir, settings)

    def _create(self) -> None:
        argv = [str(_programs(self.bin_dir) / "pg_basebackup"), "-D", str(self.data_dir), "-d", self._primary]
        argv += ["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]
        log = self._instance.folder / "basebackup.log"
        self._instance.run(argv, env=self._env, log=log, timeout=START, ending=signal.SIGTERM)

    def _ready(self) -> bool:
        pid_file = self.data_dir / "postmaster.pid"
        return pid_file.exists() and pid_file.read_text().rstrip().endswith(("ready", "standby"))

    @property
    def place(self) -> str:
        """Host and port."""
        return str(urlsplit(self.url).netloc.rpartition("@")[2])


def _make(shop: Shop) -> None:
    primary = shop.ground.postgres
    if primary.bin_dir is None or not (_programs(primary.bin_dir) / "pg_basebackup").exists():
        raise CannotBeMade("needs a PostgreSQL of this machine that has pg_basebackup")
    standby = _Standby(Instance("standby", database_account()), primary.bin_dir, primary.url, {})
    shop.closing.callback(standby.close)
    shop.database.raw.execute(b"ALTER SYSTEM SET synchronous_standby_names = '*'")
    shop.database.raw.execute(b"SELECT pg_reload_conf()")
    synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
    shop.until(lambda: shop.database.value(synchronous) == 1, "the standby follows", 30)
    parts = urlsplit(shop.database.url)
    account, _, place = parts.netloc.rpartition("@")
    both = parts._replace(netloc=f"{account}@{place},{standby.place}", query="target_session_attrs=read-write")
    shop.address = urlunsplit(both)
    shop.open()
    shop.ended(shop.submit(Charge(order="before")))
    shop.is_("hangs")
    [running] = shop.submit(Charge(order="running"))
    shop.until(lambda: shop.state(running) == "running", "a job runs", 30)
    shop.submit(*(Charge(order=f"waits-{number}") for number in range(_JOBS)))
    primary.kill()
    shop.is_("fine")
    alone = urlunsplit(parts._replace(netloc=f"{account}@{standby.place}"))
    shop.variables["STANDBY_URL"] = alone
    shop.database.close()
    shop.database = Database(alone)
    shop.closing.callback(shop.database.close)
    shop.engine = shop.database.keep(sqlalchemy_engine(alone))
    # The new primary has no standby that could answer a commit.
    shop.database.raw.execute(b"ALTER SYSTEM RESET synchronous_standby_names")
    shop.database.raw.execute(b"SELECT pg_reload_conf()")


def _programs(bin_dir: Path) -> Path:
    """Return where all programs are: the folder that was found may hold links to some."""
    return (bin_dir / "postgres").resolve().parent


def _ends(shop: Shop) -> None:
    shop.ended(shop.submit(Charge(order="after")))
    shop.until(lambda: shop.count("succeeded") == _JOBS + 3, "all have succeeded", 90)
    charged = "SELECT count(*), count(DISTINCT order_id) FROM public.charges"
    assert shop.database.rows(charged) == [(_JOBS + 3, _JOBS + 3)]
    assert check_invariants(shop.database) == []


PLAY = Play(
    make=_make,
    ends=_ends,
    sees={
        "Look": ("failing|starting|database",),
        "Promote the standby": ("t",),
        "Look whether it is the primary": ("f", "ready"),
    },
    own_servers=True,
)
