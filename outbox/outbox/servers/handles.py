"""What a caller holds in its hands: a PostgreSQL and a RabbitMQ, wherever they come from."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

from outbox.servers import databases
from outbox.servers.errors import NotOurs


class Control(Protocol):
    """Power over a server that this package started; waits are bounded, a failed start is StartFailed."""

    def start(self) -> None:
        """Start again on the same address and data; return when clients are answered; no-op if running."""

    def stop(self) -> None:
        """Stop gracefully; no-op if it is down."""

    def kill(self) -> None:
        """End it as a crash would, without any chance to write or say anything; no-op if it is down."""

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing answers."""

    def resume(self) -> None:
        """Let a frozen server go on."""

    def close(self) -> None:
        """End it and remove its data."""

    @property
    def pid(self) -> int | None:
        """The server's main process on this machine; None while it is down, and for a container."""

    @property
    def data_dir(self) -> Path | None:
        """The data folder on this machine; None for a container."""

    @property
    def bin_dir(self) -> Path | None:
        """The folder of the server's programs on this machine; None for a container."""


class BrokerControl(Control, Protocol):
    """Power over a broker, with its own command-line tool."""

    def ctl(self, *args: str) -> str:
        """Run `rabbitmqctl` with these arguments against this broker and return its standard output."""


def mask(url: str) -> str:
    """Return `url` with its password, if any, replaced by ***."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    account, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{account.partition(':')[0]}:***@{host}"))


@dataclass(frozen=True, repr=False)
class _Server:
    url: str
    origin: str
    _control: Control | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(url={mask(self.url)!r}, origin={self.origin!r})"

    @property
    def private(self) -> bool:
        """True if this package started it, so that it may be stopped, killed and started again."""
        return self._control is not None

    @property
    def pid(self) -> int | None:
        """The server's main process here; None while it is down, if it is a container or not ours."""
        return None if self._control is None else self._control.pid

    @property
    def data_dir(self) -> Path | None:
        """The data folder; None for a container or a server that is not ours."""
        return None if self._control is None else self._control.data_dir

    @property
    def bin_dir(self) -> Path | None:
        """The folder of the server's programs; None for a container or a server that is not ours."""
        return None if self._control is None else self._control.bin_dir

    def start(self) -> None:
        """Start it again on the same address and data; raises NotOurs, or StartFailed."""
        self._ours().start()

    def stop(self) -> None:
        """Stop it gracefully; the data stay. Raises NotOurs for a server that was only found."""
        self._ours().stop()

    def restart(self) -> None:
        """Stop it gracefully if it runs, and start it; raises NotOurs, or StartFailed."""
        self._ours().stop()
        self._ours().start()

    def kill(self) -> None:
        """Crash it: SIGKILL, on every process that belongs to it. Raises NotOurs."""
        self._ours().kill()

    def pause(self) -> None:
        """Freeze it with SIGSTOP: connections stay open and nothing answers. Raises NotOurs."""
        self._ours().pause()

    def resume(self) -> None:
        """Let it go on after `pause`. Raises NotOurs."""
        self._ours().resume()

    def close(self) -> None:
        """End it and remove its data if it is ours, else do nothing; the context that lent it does this."""
        if self._control is not None:
            self._control.close()

    def _ours(self) -> Control:
        if self._control is None:
            raise NotOurs(f"{mask(self.url)} was not started here, so it is not stopped here")
        return self._control


@dataclass(frozen=True, repr=False)
class Postgres(_Server):
    """A PostgreSQL server: `url` names a database that exists and a role that may create others.

    `origin` is one of 'environment', 'docker', 'binaries', 'wheel'. The text form hides the password.
    """

    _created: set[str] = field(default_factory=set, compare=False)

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL; psycopg's errors pass through (name taken...)."""
        databases.create(self.url, name)
        self._created.add(name)
        return databases.url_of(self.url, name)

    def drop_database(self, name: str) -> None:
        """Drop a database, ending its connections; one that is gone already is fine.

        Raises NotOurs for a database that this object did not create, unless the whole server is ours.
        """
        if not self.private and name not in self._created:
            raise NotOurs(f"database {name!r} was not created here, so it is not dropped here")
        databases.drop(self.url, name)
        self._created.discard(name)


@dataclass(frozen=True, repr=False)
class RabbitMQ(_Server):
    """A RabbitMQ broker; `origin` is one of 'environment', 'docker', 'binaries'. Shown without password."""

    _control: BrokerControl | None = field(default=None, compare=False)

    def ctl(self, *args: str) -> str:
        """Run `rabbitmqctl` against this broker and return its output.

        Raises NotOurs for a broker that was only found, NoServer if the command fails (with what it said).
        """
        if self._control is None:
            raise NotOurs(f"{mask(self.url)} was not started here, so it is not managed here")
        return self._control.ctl(*args)
