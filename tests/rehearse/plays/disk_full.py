"""The tables on a disk of some megabytes that is full to its last page. Needs a user who may mount one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from rehearse.following import Play
from rehearse.work import Charge
from rehearse.world import Shop
from support.ground import CannotBeMade
from support.invariants import check_invariants

_SIZE = "24m"
_TABLES = ("jobs", "outbox", "attempts")
_FILL = "INSERT INTO public.ballast SELECT repeat('x', {size}) FROM generate_series(1, 100000)"


def _make(shop: Shop) -> None:
    disk = _small_disk(shop)
    shop.database.raw.execute(f"CREATE TABLESPACE small LOCATION '{disk}'".encode())
    for table in _TABLES:
        shop.database.raw.execute(f"ALTER TABLE outbox.{table} SET TABLESPACE small".encode())
    shop.database.raw.execute(b"CREATE TABLE public.ballast (text text) TABLESPACE small")
    shop.open()
    shop.ended(shop.submit(Charge(order="before")))
    shop.is_("hangs")
    [running] = shop.submit(Charge(order="running"))
    shop.until(lambda: shop.state(running) == "running", "a job runs", 30)
    for size in (1900, 10):
        with pytest.raises(psycopg.errors.DiskFull):
            shop.database.raw.execute(_FILL.format(size=size).encode())
    with pytest.raises(sa.exc.OperationalError, match="No space left"):
        shop.submit(*(Charge(order=f"never-{number}", amount="1" * 300) for number in range(1000)))
    shop.is_("fine")


def _small_disk(shop: Shop) -> Path:
    data = shop.ground.postgres.data_dir
    if data is None or os.geteuid() != 0:
        raise CannotBeMade("needs root, to mount a disk that is full soon, and a PostgreSQL of this machine")
    disk = data.parent / "small"
    disk.mkdir()
    owner = f"uid={data.stat().st_uid},gid={data.stat().st_gid},mode=0700"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_SIZE},{owner}", "tmpfs", str(disk)], check=False, capture_output=True
    )
    if mounted.returncode:
        raise CannotBeMade(f"mount: {mounted.stderr.decode().strip()}")
    # Before the server removes its folder, and whatever became of the rehearsal.
    shop.closing.callback(subprocess.run, ["umount", "--lazy", str(disk)], check=False)
    return disk


def _make_room(shop: Shop) -> None:
    shop.database.raw.execute(b"DROP TABLE public.ballast")


def _ends(shop: Shop) -> None:
    shop.ended(shop.submit(Charge(order="after")))
    shop.until(lambda: shop.count("succeeded") == 3, "what ran meanwhile is done, too", 60)
    orders = "SELECT string_agg(order_id, ' ' ORDER BY order_id) FROM public.charges"
    assert shop.database.value(orders) == "after before running"
    assert check_invariants(shop.database) == []


PLAY = Play(
    make=_make,
    ends=_ends,
    sees={"Look": ("100%", "jobs"), "Keep it from coming back": ("0",)},
    acts={"Make room": _make_room},
    own_servers=True,
)
