"""PostgreSQL and RabbitMQ in containers, by testcontainers, where a Docker engine answers."""

import importlib.util
import os
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from outbox.servers import databases, probes
from outbox.servers.errors import NoServer, StartFailed
from outbox.servers.instance import wait_until
from outbox.servers.ports import free_port

POSTGRES_IMAGE = "postgres:17-alpine"
RABBITMQ_IMAGE = "rabbitmq:4.1-alpine"
PING = 5  # seconds for the engine to answer
READY = 120.0  # seconds from a container's start to its server's readiness; the pull of an image comes before
STOP = 30  # seconds for a graceful stop
TRIES = 3
_SOCKETS = ("/var/run/docker.sock", "~/.docker/run/docker.sock", "~/.docker/desktop/docker.sock")
_SETTINGS = ("~/.testcontainers.properties", "~/.docker/config.json")


def missing() -> str | None:
    """Return why no container can be started here, or None if an engine answers."""
    if importlib.util.find_spec("testcontainers") is None or importlib.util.find_spec("docker") is None:
        return "testcontainers is not installed (extra `servers`)"
    named = {"DOCKER_HOST", "DOCKER_CONTEXT", "TESTCONTAINERS_HOST_OVERRIDE"} & os.environ.keys()
    if not named and not any(Path(place).expanduser().exists() for place in (*_SOCKETS, *_SETTINGS)):
        return "no Docker engine (no DOCKER_HOST, no socket)"
    try:
        from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415 - half a second of imports

        client = DockerClient(timeout=PING).client
        try:
            client.ping()
        finally:
            client.close()
    except Exception as error:  # noqa: BLE001 - whatever it is, the engine is not to be had
        return f"the Docker engine does not answer ({type(error).__name__})"
    return None


class Container:
    """A server in a container that keeps its host port when it is stopped and started.

    Testcontainers' own reaper removes it if the caller dies. Raises StartFailed.
    """

    pid: int | None = None
    data_dir: Path | None = None
    bin_dir: Path | None = None

    def __init__(
        self,
        image: str,
        port: int,
        *,
        env: Mapping[str, str],
        command: list[str] | None,
        ready: Callable[[str, int], bool],
    ) -> None:
        self._image, self._inner, self._ready = image, port, ready
        self._env, self._command = dict(env), command
        self._container: Any = None
        self.host, self.port = "", 0
        for attempt in range(TRIES):
            try:
                self._run()
                self._wait()
            except Exception as error:
                with suppress(Exception):  # the first error is the one to tell
                    self.close()
                # Any engine, any transport: there is no common error class to catch.
                if "already allocated" not in str(error) and "already in use" not in str(error):
                    raise StartFailed(f"container {image} did not start: {error}") from error
                if attempt + 1 == TRIES:
                    raise StartFailed(f"container {image} found no free port: {error}") from error
            except BaseException:
                self.close()
                raise
            else:
                return

    def start(self) -> None:
        """Start the same container again."""
        self._container.get_wrapped_container().start()
        self._wait()

    def stop(self) -> None:
        """Stop it gracefully."""
        self._container.get_wrapped_container().stop(timeout=STOP)

    def kill(self) -> None:
        """SIGKILL everything in it."""
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
        if wrapped.status == "paused":
            wrapped.unpause()
        if wrapped.status in {"running", "paused"}:
            wrapped.kill()

    def pause(self) -> None:
        """Freeze everything in it."""
        self._container.get_wrapped_container().pause()

    def resume(self) -> None:
        """Let it go on."""
        self._container.get_wrapped_container().unpause()

    def close(self) -> None:
        """Remove it with its data."""
        container, self._container = self._container, None
        if container is not None:
            container.stop()

    def ctl(self, *args: str) -> str:
        """Run rabbitmqctl in it; raises NoServer with what it said if it fails."""
        done = self._container.get_wrapped_container().exec_run(["rabbitmqctl", "--quiet", *args], demux=True)
        output, error = done.output
        if done.exit_code != 0:
            raise NoServer(f"rabbitmqctl {args[0]} ended with {done.exit_code}: {(error or b'').decode().strip()}")
        return (output or b"").decode()

    def _run(self) -> None:
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415

        self._container = DockerContainer(self._image)
        # A port chosen by the engine would change with every restart.
        self._container.with_bind_ports(self._inner, free_port())
        for name, value in self._env.items():
            self._container.with_env(name, value)
        if self._command is not None:
            self._container.with_command(self._command)
        self._container.start()
        self.host = self._container.get_container_host_ip()
        self.port = int(self._container.get_exposed_port(self._inner))

    def _wait(self) -> None:
        started = time.monotonic()
        if not wait_until(lambda: self._ready(self.host, self.port), timeout=READY, alive=lambda: True):
            raise StartFailed(f"no answer after {time.monotonic() - started:.0f} s")


class PostgresContainer(Container):
    """PostgreSQL in a container, with `settings` on its command line."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._password = secrets.token_hex(16)
        flags = {"max_connections": "200", **(settings or {})}
        super().__init__(
            POSTGRES_IMAGE,
            5432,
            env={"POSTGRES_PASSWORD": self._password},
            command=["postgres", *(f"--{name}={value}" for name, value in flags.items())],
            ready=lambda host, port: databases.accepts(self._url(host, port), 5.0),
        )

    @property
    def url(self) -> str:
        """The URL of the database `postgres` for the superuser."""
        return self._url(self.host, self.port)

    def _url(self, host: str, port: int) -> str:
        return f"postgresql://postgres:{self._password}@{host}:{port}/postgres"


class RabbitMQContainer(Container):
    """RabbitMQ in a container, with `config` as an additional configuration file."""

    def __init__(self, config: Mapping[str, str] | None = None) -> None:
        self._password = secrets.token_hex(16)
        lines = "".join(f"{name} = {value}\n" for name, value in (config or {}).items())
        script = (
            'printf %s "$OUTBOX_CONFIG" > /etc/rabbitmq/conf.d/90-outbox.conf'
            " && exec docker-entrypoint.sh rabbitmq-server"
        )
        super().__init__(
            RABBITMQ_IMAGE,
            5672,
            env={
                "RABBITMQ_DEFAULT_USER": "outbox",
                "RABBITMQ_DEFAULT_PASS": self._password,
                "OUTBOX_CONFIG": lines,
            },
            command=["sh", "-c", script],
            ready=probes.speaks_amqp,
        )

    @property
    def url(self) -> str:
        """The URL of the default virtual host for an administrator."""
        return f"amqp://outbox:{self._password}@{self.host}:{self.port}/"
