"""What a payload may say of concurrency keys is checked where it is said."""

from __future__ import annotations

from typing import Any

import pytest

from outbox_schemas import NameRefused, Payload, PayloadError
from outbox_schemas.limit_keys import KeyLimit


def defined(*, keyed: bool = True, **attributes: Any) -> type[Payload]:
    """Return a payload class with these attributes."""
    methods: dict[str, Any] = {"logical_key": lambda _: "k"}
    if keyed:
        methods["limit_key"] = lambda self: self.on
    annotations = {"on": object}
    body = {"kind": "k", "__annotations__": annotations, "on": None, "__module__": __name__, **methods, **attributes}
    return type("Given", (Payload,), body)


@pytest.mark.parametrize(
    ("attributes", "field"),
    [
        ({"limit_max": 0}, "limit_max"),
        ({"limit_max": 1001}, "limit_max"),
        ({"limit_max": True}, "limit_max"),
        ({"limit_max": "2"}, "limit_max"),
        ({"ordered": 1}, "ordered"),
        ({"ordered": True, "limit_max": 2}, "ordered"),
        ({"after_failure": "stop", "ordered": True}, "after_failure"),
        ({"after_failure": "block"}, "after_failure"),
        ({"limit_group": "a b"}, "limit_group"),
        ({"limit_group": ""}, "limit_group"),
        ({"keyed": False, "ordered": True}, "limit_key"),
        ({"keyed": False, "limit_max": 5}, "limit_key"),
        ({"keyed": False, "limit_group": "g"}, "limit_key"),
    ],
)
def test_terms_that_contradict_or_are_out_of_bounds_are_refused(attributes: dict[str, Any], field: str) -> None:
    """One clear error names the class and the attribute, when the class is defined."""
    with pytest.raises((PayloadError, NameRefused), match=rf"Given\.{field}"):
        defined(**attributes)


@pytest.mark.parametrize("key", ["", "a\x00b", "a\nb", "\u202e", "k" * 513, 7, "\ud800"])
def test_a_hostile_key_is_refused_by_its_name(key: object) -> None:
    """The same rules as for a logical key, under the name of the method."""
    with pytest.raises(NameRefused, match="limit_key"):
        defined()(on=key).checked_limit()


def test_what_is_kept_of_a_key() -> None:
    """The group is the kind unless one is named; the rule says whether order counts, and what a failure means."""
    assert defined()(on="a").checked_limit() == KeyLimit("k", "a", 1, "")
    assert defined(limit_max=7, limit_group="g")(on="a").checked_limit() == KeyLimit("g", "a", 7, "")
    assert defined(ordered=True)(on="a").checked_limit() == KeyLimit("k", "a", 1, "s")
    assert defined(ordered=True, after_failure="block")(on="ä").checked_limit() == KeyLimit("k", "ä", 1, "b")
    assert defined()(on=None).checked_limit() is None
    assert defined(keyed=False)().checked_limit() is None
