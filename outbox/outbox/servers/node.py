"""A private RabbitMQ node from the machine's own programs: own name, cookie, epmd, ports and data."""

import os
import re
import secrets
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from outbox.servers import probes
from outbox.servers.accounts import run_as
from outbox.servers.errors import NoServer, StartFailed
from outbox.servers.instance import Instance, environment, group_exists, kill_group, tail, wait_until
from outbox.servers.ports import LOOPBACK, Port

START = 120.0  # seconds until clients are answered; about 7 on an idle machine
STOP = 60.0  # seconds for a graceful stop
CTL = 60  # seconds for one rabbitmqctl
TRIES = 3
_LOOPBACK_ONLY = "-kernel inet_dist_use_interface {127,0,0,1}"
_PLACES = (
    "/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin",  # Debian, RPM
    "/opt/rabbitmq*/sbin",
    "/opt/homebrew/opt/rabbitmq/sbin",
    "/usr/local/opt/rabbitmq/sbin",
)


@dataclass(frozen=True)
class Programs:
    """Where the broker's scripts are, and Erlang's name server."""

    scripts: Path
    epmd: Path


def find_programs() -> Programs | None:
    """Return the newest RabbitMQ on this machine; None if it or Erlang is not installed.

    What stands on PATH is often a packager's wrapper that changes the user and writes to the system's log
    folder, so the scripts in the package's own folder are preferred, and others taken only if they are the
    real ones.
    """
    folders: list[Path] = []
    for place in _PLACES:
        folders += sorted(Path("/").glob(place[1:]), key=_version, reverse=True)
    on_path = shutil.which("rabbitmq-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    epmd = _find_epmd()
    for folder in folders:
        if epmd and all((folder / name).exists() for name in ("rabbitmq-server", "rabbitmqctl", "rabbitmq-env")):
            return Programs(folder, epmd)
    return None


def _find_epmd() -> Path | None:
    on_path = shutil.which("epmd")
    if on_path:
        return Path(on_path)
    erl = shutil.which("erl")
    root = Path(erl).resolve().parent.parent if erl else None
    return next(iter(sorted(root.glob("erts-*/bin/epmd"), reverse=True)), None) if root else None


def _version(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(folder))]


class Node:
    """One broker; raises StartFailed if it can't be made, and then nothing is left behind."""

    def __init__(self, instance: Instance, programs: Programs, config: Mapping[str, str] | None = None) -> None:
        self.bin_dir = programs.scripts
        self.data_dir = instance.folder / "data"
        self._instance = instance
        self._programs = programs
        self._config = dict(config or {})
        self._lock = threading.RLock()
        self._server: subprocess.Popen[bytes] | None = None
        self._epmd: subprocess.Popen[bytes] | None = None
        self._name = f"outbox-{secrets.token_hex(4)}@localhost"
        self._password = secrets.token_hex(16)
        self._ports = [Port(), Port(), Port()]
        self._log = instance.folder / "server.log"
        try:
            self._create()
            self._first_start()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The URL of the default virtual host for an administrator."""
        return f"amqp://outbox:{self._password}@{LOOPBACK}:{self._ports[0].number}/"

    @property
    def pid(self) -> int | None:
        """The leader of the node's process group, None while it is down."""
        with self._lock:
            return None if self._server is None or self._server.poll() is not None else self._server.pid

    def start(self) -> None:
        """Start on the same ports and data, and return once AMQP answers."""
        with self._lock:
            if self.pid is not None:
                return
            self._reap()
            self._start_epmd()
            argv = [str(self._programs.scripts / "rabbitmq-server")]
            server = self._spawn(argv)
            self._server = server
            if not wait_until(self._answers, timeout=START, alive=lambda: server.poll() is None):
                self.kill()
                raise StartFailed(f"RabbitMQ from {self.bin_dir} did not start: {self._reason()}")

    def stop(self) -> None:
        """Stop gracefully; after STOP seconds, hard."""
        with self._lock:
            if self._server is None:
                return
            self._server.terminate()  # the script passes it on to the node and waits for it
            self._reap(STOP)
            self.kill()

    def kill(self) -> None:
        """Crash: SIGKILL to the node's whole process group."""
        with self._lock:
            if self._server is None:
                return
            leader = self._server.pid
            kill_group(leader, signal.SIGKILL)
            self._reap(STOP)
            # The leader is only the script; the node itself, with its sockets, may take a moment longer.
            wait_until(lambda: not group_exists(leader), timeout=STOP, alive=lambda: True)

    def pause(self) -> None:
        """Freeze the node."""
        if (pid := self.pid) is not None:
            kill_group(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        if (pid := self.pid) is not None:
            kill_group(pid, signal.SIGCONT)

    def ctl(self, *args: str) -> str:
        """Run rabbitmqctl against this node; raises NoServer with what it said if it fails."""
        argv = [str(self.bin_dir / "rabbitmqctl"), "--quiet", "--timeout", str(CTL), "-n", self._name, *args]
        try:
            done = subprocess.run(
                argv,
                env=self._env(),
                cwd=self._instance.folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=CTL * 2,
                check=False,
                **run_as(self._instance.who),
            )
        except subprocess.TimeoutExpired as error:
            raise NoServer(f"rabbitmqctl {args[0]} did not end within {CTL * 2} s") from error
        if done.returncode != 0:
            raise NoServer(f"rabbitmqctl {args[0]} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def close(self) -> None:
        """End it and remove its data."""
        with self._lock:
            self._instance.close()
            self._server = self._epmd = None
            for port in self._ports:
                port.close()

    def _create(self) -> None:
        self._instance.make_folder("data")
        self._instance.make_folder("conf.d")
        self._instance.write(".erlang.cookie", secrets.token_hex(20), mode=0o400)
        self._instance.write("env.conf", "")
        self._instance.write("plugins", "[].\n")

    def _first_start(self) -> None:
        """Start for the first time; ports that were taken all the same are exchanged for others."""
        for attempt in range(TRIES):
            self._configure()
            try:
                self.start()
            except StartFailed as error:
                if not re.search("eaddrinuse|in use", str(error)) or attempt + 1 == TRIES:
                    raise
                self._end_epmd()
                for port in self._ports:
                    port.close()
                self._ports = [Port(), Port(), Port()]
            else:
                return

    def _configure(self) -> None:
        settings = {
            "listeners.tcp.1": f"{LOOPBACK}:{self._ports[0].number}",
            "default_user": "outbox",
            "default_pass": self._password,
            "default_user_tags.administrator": "true",
            **self._config,
        }
        self._instance.write("rabbitmq.conf", "".join(f"{name} = {value}\n" for name, value in settings.items()))

    def _env(self) -> dict[str, str]:
        folder = self._instance.folder
        amqp_port, dist_port, epmd_port = (str(port.number) for port in self._ports)
        return environment(
            folder,
            {
                "RABBITMQ_NODENAME": self._name,
                "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
                "RABBITMQ_NODE_PORT": amqp_port,
                "RABBITMQ_DIST_PORT": dist_port,
                "RABBITMQ_MNESIA_BASE": str(self.data_dir),
                "RABBITMQ_LOG_BASE": str(folder),
                "RABBITMQ_PID_FILE": str(folder / "node.pid"),
                "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
                "RABBITMQ_CONFIG_FILES": str(folder / "conf.d"),
                "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
                "RABBITMQ_CONF_ENV_FILE": str(folder / "env.conf"),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _LOOPBACK_ONLY,
                "RABBITMQ_CTL_ERL_ARGS": _LOOPBACK_ONLY,
                "RABBITMQ_CTL_DIST_PORT_MIN": "0",  # any port: the default range holds eleven callers
                "RABBITMQ_CTL_DIST_PORT_MAX": "0",
                "ERL_EPMD_PORT": epmd_port,
                "ERL_EPMD_ADDRESS": LOOPBACK,
                "ERL_CRASH_DUMP_SECONDS": "0",
            },
        )

    def _start_epmd(self) -> None:
        """Start a name server in the foreground: one that Erlang started would outlive the node, unknown."""
        if self._epmd is not None and self._epmd.poll() is None:
            return
        self._end_epmd()
        port = self._ports[2].number
        argv = [str(self._programs.epmd), "-port", str(port), "-address", LOOPBACK]
        epmd = self._epmd = self._spawn(argv)
        if not wait_until(lambda: probes.listens(LOOPBACK, port), timeout=10.0, alive=lambda: epmd.poll() is None):
            raise StartFailed(f"epmd did not start: {tail(self._log)}")

    def _spawn(self, argv: list[str]) -> subprocess.Popen[bytes]:
        return self._instance.spawn(argv, env=self._env(), log=self._log, ending=signal.SIGKILL)

    def _end_epmd(self) -> None:
        if self._epmd is not None:
            kill_group(self._epmd.pid, signal.SIGKILL)
            self._instance.reap(self._epmd, STOP)
            self._epmd = None

    def _answers(self) -> bool:
        return probes.speaks_amqp(LOOPBACK, self._ports[0].number)

    def _reason(self) -> str:
        logs = sorted(self._instance.folder.glob("outbox-*.log"))
        return " | ".join(tail(log) for log in [self._log, *logs[:1]])

    def _reap(self, timeout: float = 0) -> None:
        if self._server is not None and self._instance.reap(self._server, timeout):
            self._server = None
