"""Which handlers a consumer runs, and what is refused before it starts."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from outbox.settings import Settings
from outbox_consumer import AsyncHandler, Handler, HandlerError, Job, RetryPolicy
from outbox_consumer.contract.horizons import check_inbox_keys
from outbox_consumer.contract.registry import Lane, Registry, load_handlers
from outbox_consumer.isolation.slots import ProcessSlots
from support.consuming import AsyncTask, NewTask, OtherTask, Task, async_handler, handler

HEAD = """
from typing import ClassVar
from outbox_consumer import AsyncHandler, Handler
from outbox_schemas import Payload

class A(Payload):
    kind: ClassVar[str] = "file.a"
    def logical_key(self) -> str: return "a"

class B(A):
    kind: ClassVar[str] = "file.b"
    version: ClassVar[int] = 3
    queue: ClassVar[str] = "b"
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Yield a function that writes a module and returns its name; the modules are forgotten with the test."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    names: list[str] = []

    def write(body: str) -> str:
        name = f"handlers_{tmp_path.name.replace('-', '_')}_{len(names)}"
        (tmp_path / f"{name}.py").write_text(HEAD + textwrap.dedent(body), encoding="utf-8")
        names.append(name)
        return name

    yield write
    for name in names:
        sys.modules.pop(name, None)


def test_module_brings_all_its_complete_handlers(module: Callable[[str], str]) -> None:
    """`MODULE` loads each handler defined there: not an imported one, nor a base class without `handle`."""
    name = module(
        """
        from support.consuming import Task
        class Base(Handler[A]): pass
        class One(Base):
            def handle(self, job, payload): pass
        class Two(AsyncHandler[B]):
            versions = (1, 2, 3)
            async def handle(self, job, payload): pass
        """
    )
    registry = load_handlers([name])
    assert sorted(type(one).__name__ for one in registry.handlers()) == ["One", "Two"]
    assert {(ability.kind, ability.version) for ability in registry.abilities} == {
        ("file.a", 1),
        ("file.b", 1),
        ("file.b", 2),
        ("file.b", 3),
    }
    assert registry.queues() == ["b", "default"]
    assert set(registry.by_lane()) == {Lane.TASK, Lane.THREAD}
    assert type(registry.find("file.b", 2)).__name__ == "Two"


def test_bases_need_not_be_able_to_run(module: Callable[[str], str]) -> None:
    """A private name, `abstract = True`, or a subclass in the module make an incomplete class a base."""
    name = module(
        """
        class _Private(Handler): pass
        class Marked(Handler[A]): abstract = True
        class Derived(AsyncHandler): pass
        class One(Marked):
            def handle(self, job, payload): pass
        class Two(Derived):
            payload_type = B
            async def handle(self, job, payload): pass
        """
    )
    assert sorted(type(one).__name__ for one in load_handlers([name]).handlers()) == ["One", "Two"]


def test_queues_beside_the_handlers_are_told_or_refused() -> None:
    """A queue that no payload names is told; a consumer for nothing but such queues would do nothing, ever."""
    registry = Registry([handler(), handler(payload=OtherTask)])
    assert registry.check_queues(["q", "elsewhere"]) == ["elsewhere"]
    assert registry.like(["elsewhere", "Q"]) == ["q"]
    assert registry.like(["elsewhere"]) == []
    with pytest.raises(HandlerError, match=r"works for elsewhere, but its handlers' payloads go to other, q"):
        registry.check_queues(["elsewhere"])


def test_name_brings_one_handler(module: Callable[[str], str]) -> None:
    """`MODULE:NAME` loads that one alone; naming it twice is naming it once."""
    name = module(
        """
        class One(Handler[A]):
            def handle(self, job, payload): pass
        class Two(Handler[B]):
            def handle(self, job, payload): pass
        """
    )
    assert [type(one).__name__ for one in load_handlers([f"{name}:One", f"{name}:One"]).handlers()] == ["One"]


BROKEN = {
    "no handler": ("", "", "defines no Handler"),
    "not a handler": ("X = 1", ":X", "is not a Handler"),
    "no such name": ("", ":Missing", "is not a Handler"),
    "import error": ("import nowhere_to_be_found", "", "imports 'nowhere_to_be_found', which can't be found"),
    "exit": ("raise SystemExit(0)", "", "SystemExit"),
    "raises": ("1 / 0", "", "ZeroDivisionError"),
    "no payload": ("class X(Handler):\n    def handle(self, job, payload): pass", ":X", "X names no payload"),
    "one without payload": (
        "class X(Handler):\n    def handle(self, job, payload): pass\n"
        "class Y(Handler[A]):\n    def handle(self, job, payload): pass",
        "",
        "X names no payload",
    ),
    "one without handle": (
        "class X(Handler[A]):\n    def perform(self, job, payload): pass\n"
        "class Y(Handler[B]):\n    def handle(self, job, payload): pass",
        "",
        "X must define handle",
    ),
    "no payload class": (
        "class P: kind = 'p'; version = 1; queue = 'q'\n"
        "class X(Handler):\n    payload_type = P\n    def handle(self, job, payload): pass",
        "",
        "no Payload subclass: P",
    ),
    "no logical key": (
        "class P(Payload):\n    kind: ClassVar[str] = 'p'\n"
        "class X(Handler[P]):\n    def handle(self, job, payload): pass",
        "",
        "P, which must define logical_key",
    ),
    "bad init": (
        "class X(Handler[A]):\n    def __init__(self): raise OSError('disk')\n    def handle(self, job, payload): pass",
        "",
        "disk",
    ),
    "clash": (
        "class X(Handler[A]):\n    def handle(self, job, payload): pass\nclass Y(X): pass",
        "",
        "both handle kind 'file.a' version 1",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_loaded_is_refused_with_its_reason(module: Callable[[str], str], case: str) -> None:
    """A name that can't be loaded raises one error that says what is wrong."""
    body, suffix, message = BROKEN[case]
    with pytest.raises(HandlerError, match=message):
        load_handlers([module(body) + suffix])


@pytest.mark.parametrize("name", ["", ":X", ".relative", "no.such.module", "a b"])
def test_malformed_names_are_refused(name: str) -> None:
    """No spelling of a name gets past as something else."""
    with pytest.raises(HandlerError):
        load_handlers([name])


def test_nothing_to_run_is_refused() -> None:
    """A consumer without handlers would take hints and run nothing."""
    with pytest.raises(HandlerError, match="no handlers"):
        Registry([])


def test_versions_of_one_kind_may_have_handlers_of_their_own() -> None:
    """Two versions are two handlers' work; the same version twice is a clash."""
    registry = Registry([handler(), handler(payload=NewTask), handler(payload=OtherTask)])
    assert registry.find(Task.kind, 1) is not registry.find(Task.kind, 2)
    with pytest.raises(HandlerError, match="both handle"):
        Registry([handler(versions=(1, 2)), handler(payload=NewTask)])


def test_handler_without_handle_is_refused() -> None:
    """A class that forgot `handle` is found before it claims anything."""

    class Empty(Handler[Task]): ...

    class AsyncEmpty(AsyncHandler[AsyncTask]): ...

    for made in (Empty(), AsyncEmpty()):
        with pytest.raises(HandlerError, match="must define handle"):
            Registry([made])


def test_abilities_carry_what_the_claim_needs() -> None:
    """Kind, versions, lease, attempts and handler version reach the claim as declared."""

    async def handle(job: Any, payload: Any) -> None: ...

    made = async_handler(handle, lease=7, versions={2, 1}, handler_version="v9", retry=RetryPolicy(max_attempts=4))
    found = [(one.kind, one.version, one.lease_s, one.max_attempts, one.handler_version) for one in made.abilities()]
    assert found == [("test.async_task", version, 7.0, 4, "v9") for version in (1, 2)]


class SetByObject(Handler[Task]):
    """One whose objects are made from settings."""

    effect_key_lifetime = timedelta(days=8)

    def __init__(self, **own: Any) -> None:
        vars(self).update(own)

    def handle(self, job: Any, payload: Any) -> None:
        """Do nothing."""


def test_what_an_object_says_counts_for_its_jobs() -> None:
    """Its claims ask for its own lease, tries, age and versions."""
    own = RetryPolicy(max_attempts=3, max_age=timedelta(hours=1))
    [ability] = Registry([SetByObject(retry=own, lease=timedelta(seconds=7), versions=(4,))]).abilities
    assert (ability.version, ability.lease_s, ability.max_attempts, ability.max_age_s) == (4, 7, 3, 3600)


@pytest.mark.parametrize(
    "own",
    [
        {"retry": RetryPolicy(max_age=timedelta(days=9))},
        {"retry": None},
        {"lease": 5},
        {"lease": timedelta(days=2)},
        {"max_runtime": timedelta(seconds=1)},
        {"effect_key_lifetime": timedelta(hours=1)},
        {"isolation": "process"},
        {"memory_limit": 1},
    ],
    ids="-".join,
)
def test_an_object_is_held_to_the_rules_of_its_class(own: dict[str, Any]) -> None:
    """Whatever would be refused in the class's body is refused of an object when a consumer takes it: retries that
    outlive an effect's key, most of all.
    """
    with pytest.raises(HandlerError, match=rf"SetByObject\.({'|'.join([*own, 'effect_key_lifetime'])})"):
        Registry([SetByObject(**own)])


def test_a_class_is_held_to_its_rules_at_the_start_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was set on it after its definition is found when a consumer takes it."""
    monkeypatch.setattr(SetByObject, "retry", RetryPolicy(max_age=timedelta(days=9)))
    with pytest.raises(HandlerError, match="effect_key_lifetime"):
        Registry([SetByObject()])


def test_a_handler_may_be_a_dataclass() -> None:
    """Its objects compare by their fields and have no hash; nothing asks for either."""

    @dataclass
    class Configured(Handler[Task]):
        url: str

        def handle(self, job: Job, payload: Task) -> None:
            """Do nothing."""

    @dataclass
    class Other(Handler[OtherTask]):
        isolation = "process"
        url: str

        def handle(self, job: Job, payload: OtherTask) -> None:
            """Do nothing."""

    one, other = Configured("http://a"), Other("http://a")
    registry = Registry([one, other])
    assert [*map(id, registry.handlers())] == [id(one), id(other)]
    check_inbox_keys(registry.handlers(), 1e9)
    with pytest.raises(HandlerError, match="must be a class at the top of a module"):
        ProcessSlots(1, None, lambda: None, handlers=[other], settings=Settings())
