"""Letters under keys that the consumers' file lacks: one key is in the backup, the other is lost for good."""

from __future__ import annotations

import base64
from uuid import UUID

from rehearse.following import Play
from rehearse.work import Letter
from rehearse.world import Shop
from support.sealing import ring, secret, using


def _make(shop: Shop) -> None:
    _write(shop, "2026-11")
    shop.open()
    with using(ring("2026-05")):
        [job] = shop.submit(Letter(order="kept"))
    with using(ring("2026-06")):
        [lost] = shop.submit(Letter(order="lost"))
    shop.variables |= {"JOB": str(job), "LOST": str(lost), "KIND": "shop.letter"}


def _write(shop: Shop, primary: str, *others: str) -> None:
    """Write the consumers' key file."""
    path = shop.folder / "keys.toml"
    lines = [f'digest_key = "{_text("digest")}"']
    for name in (primary, *others):
        lines += [f"[keys.{name}]", f'secret = "{_text(name)}"', f"primary = {str(name == primary).lower()}"]
    path.unlink(missing_ok=True)
    path.touch(mode=0o400)
    path.chmod(0o600)
    path.write_text("\n".join(lines), encoding="ascii")


def _text(name: str) -> str:
    return base64.b64encode(secret(name)).decode()


def _put_back(shop: Shop) -> None:
    shop.end([shop.consumer])
    _write(shop, "2026-11", "2026-05")
    shop.consumer = shop.start_consumer()
    shop.stand([shop.consumer])
    shop.ended([UUID(shop.variables["JOB"])])


def _ends(shop: Shop) -> None:
    shop.ended([UUID(shop.variables["LOST"])], "cancelled")


PLAY = Play(
    make=_make,
    ends=_ends,
    sees={"Look": ("unknown key 2026-05", "2026-05"), "Check": ("succeeded",), "If it is lost for good": ("1",)},
    acts={"Put the key back": _put_back},
)
