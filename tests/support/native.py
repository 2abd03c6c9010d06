"""Starting the services of the compose file as processes of this machine: the same arguments, the same environment."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.composing import COMPOSE, ours, seconds

EXAMPLES = Path(__file__).parents[2] / "examples"
_OUTBOX = "import sys; from outbox.cli.root import main; sys.exit(main())"
# What a name in a command's first place is here. An image has them on its path.
_PROGRAMS = {
    "outbox": [sys.executable, "-P", "-c", _OUTBOX],
    "python": [sys.executable],
    "uvicorn": [sys.executable, "-P", "-m", "uvicorn"],
}
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - what a container listens on, and nothing here
# A process starts within seconds; where every core is taken many times over it takes a minute.
START_S = 90


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@dataclass
class Native:
    """One service's process, with the ports that stand for those in its container."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    ports: dict[int, int] = field(default_factory=dict)

    def said(self) -> str:
        """Return what it has written."""
        return f"{self.name}: {self.log.read_text()[-4000:]}"


@dataclass
class Stack:
    """The services that run. `changes` are texts that stand in the place of others, in arguments and environment."""

    folder: Path
    changes: Mapping[str, str]
    extra: Mapping[str, Mapping[str, str]]
    running: list[Native] = field(default_factory=list)
    ports: dict[str, dict[int, int]] = field(default_factory=dict)

    def start(self, name: str) -> Native:
        """Start a service, once more if it is called again."""
        service = ours()[name]
        ports = self.ports_of(name) if not any(one.name == name for one in self.running) else {9464: free_port()}
        given = {key: self._here(str(value), name, ports) for key, value in service["environment"].items()}
        # Nothing of this run's own environment, but for what an image sets.
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(EXAMPLES), "PYTHONUNBUFFERED": "1", "HOME": "/nonexistent"}
        program, *rest = service["command"]
        argv = [*_PROGRAMS[program], *(self._here(word, name, ports) for word in rest)]
        log = self.folder / f"{name}-{len(self.running)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                argv,
                env=env | given | dict(self.extra.get(name, {})) | dict(self.extra[""]),
                stdout=out,
                stderr=out,
                cwd="/",
                start_new_session=True,
            )
        native = Native(name, process, log, ports)
        self.running.append(native)
        return native

    def run(self, name: str) -> None:
        """Run a service that ends by itself."""
        native = self.start(name)
        assert native.process.wait(START_S) == 0, native.said()

    def ports_of(self, name: str) -> dict[int, int]:
        """Return which ports stand for those of a service's first process."""
        wanted = (9464, 8000, 8001)
        return self.ports.setdefault(name, {port: free_port() for port in wanted})

    def healthy(self, native: Native) -> bool:
        """Tell whether a service's own health check succeeds, run as it stands in the compose file or for its image."""
        own = ours()[native.name].get("healthcheck", {}).get("test", ["CMD", *_image_check()])
        kind, program, *rest = own
        assert kind == "CMD"
        argv = [*_PROGRAMS[program], *(self._ported(word, native.ports) for word in rest)]
        return subprocess.run(argv, check=False, capture_output=True).returncode == 0

    def stop(self) -> dict[str, float]:
        """Tell all to end, and return how many seconds each took; fail for one that takes longer than it may."""
        began = time.monotonic()
        left = [one for one in self.running if one.process.poll() is None]
        for one in left:
            one.process.send_signal(signal.SIGTERM)
        took = {}
        for one in left:
            bound_s = seconds(ours()[one.name]["stop_grace_period"])
            code = one.process.wait(max(bound_s - (time.monotonic() - began), 0.1))
            took[one.name] = time.monotonic() - began
            # uvicorn ends by the signal that it was told to end by.
            assert code in {0, -signal.SIGTERM}, one.said()
        return took

    def _here(self, text: str, name: str, ports: dict[int, int]) -> str:
        if text == "/data":
            folder = self.folder / f"data-{name}"
            folder.mkdir(exist_ok=True)
            return str(folder)
        if text in self.changes:
            return self.changes[text]
        if text == "http://remotes:8001":
            return f"http://127.0.0.1:{self.ports_of('remotes')[8001]}"
        return self._ported(text.replace(_EVERYWHERE, "127.0.0.1"), ports)

    @staticmethod
    def _ported(text: str, ports: Mapping[int, int]) -> str:
        for there, here in ports.items():
            if text == str(there):
                return str(here)
            text = text.replace(f"127.0.0.1:{there}", f"127.0.0.1:{here}")
        return text


def _image_check() -> list[str]:
    text = (COMPOSE / "Dockerfile").read_text()
    [found] = re.findall(r"^HEALTHCHECK .*\\\n\s+CMD (\[.*\])$", text, re.MULTILINE)
    check: list[str] = json.loads(found)
    return check


@contextmanager
def stack(folder: Path, changes: Mapping[str, str], extra: Mapping[str, Mapping[str, str]]) -> Iterator[Stack]:
    """Yield what starts services; what still runs at the end is killed."""
    found = Stack(folder, changes, extra)
    with ExitStack() as kills:
        kills.callback(lambda: [_kill(one.process) for one in found.running])
        yield found


def _kill(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait(10)
