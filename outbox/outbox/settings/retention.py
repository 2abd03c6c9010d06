"""How long ended jobs and their payloads are kept: by state, and by kind where that says otherwise. The TOML table
`[retention]`.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from outbox_schemas.errors import NameRefused
from outbox_schemas.names import check_name

__all__ = ["LEAST_KEEP", "OR_NEVER", "KindRetention", "RetentionSettings", "keep_of"]

LEAST_KEEP = timedelta(hours=1)
"""Below this a consumer that has lost the answer to a commit could no longer look up what became of it."""
OR_NEVER = ", or 'never'"
"""How an error of `keep_of` ends."""
_LONGEST = timedelta(days=36_500)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_STATES = ("succeeded", "cancelled", "failed")
_GOES_WITH_IT = "the payload goes with the row"
_SPAN = re.compile(r"([0-9]{1,9})\s?([smhdw])")


def keep_of(value: Any) -> timedelta | None:
    """Return the time that a setting names, as `30d`, `12h` or `never`, or raise `ValueError`."""
    if value is None or isinstance(value, timedelta):
        keep = value
    elif isinstance(value, str) and value.strip().lower() == "never":
        keep = None
    else:
        found = _SPAN.fullmatch(value.strip().lower()) if isinstance(value, str) else None
        if found is None:
            raise ValueError(f"must be a time with its unit, such as '30d', '12h' or '90m'{OR_NEVER}")
        keep = timedelta(seconds=int(found[1]) * _UNITS[found[2]])
    if keep is not None and not LEAST_KEEP <= keep <= _LONGEST:
        raise ValueError(f"must be from 1h to 36500d{OR_NEVER}")
    return keep


Keep = Annotated[timedelta | None, BeforeValidator(keep_of)]


class KindRetention(BaseModel):
    """How long the ended jobs of one kind are kept. What is not set here is as for all kinds."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    succeeded: Keep = None
    """How long the row of a succeeded job is kept, with its history. 1h to 36500d, or never."""
    cancelled: Keep = None
    """The same for a cancelled job."""
    failed: Keep = None
    """The same for a failed one, which waits for a person: never, unless it is told."""
    succeeded_payload: Keep = None
    """How long the payload of a succeeded job is kept, and its checkpoints."""
    cancelled_payload: Keep = None
    """The same for a cancelled job."""
    failed_payload: Keep = None
    """The same for a failed one, which can't be redriven without it."""

    @model_validator(mode="after")
    def _payload_goes_first(self) -> Self:
        for state in _STATES:
            row, payload = getattr(self, state), getattr(self, f"{state}_payload")
            if row is not None and payload is not None and payload > row:
                raise ValueError(f"{state}_payload must not be longer than {state}: {_GOES_WITH_IT}")
        return self


class RetentionSettings(KindRetention):
    """How long ended jobs are kept; nothing is erased or purged unless it is set here."""

    kinds: dict[str, KindRetention] = Field(default_factory=dict)
    """Kinds for which other times hold: `[retention.kinds.send_invoice]`. In the environment: JSON."""
    pause_s: Annotated[float, Field(strict=True, allow_inf_nan=False)] = Field(default=600, ge=1, le=86_400)
    """Seconds between two walks of the relay through the old jobs. 1 to 86400."""
    batch: Annotated[int, Field(strict=True)] = Field(default=500, ge=1, le=10_000)
    """Jobs looked at, and purged, by one statement at most. 1 to 10000."""
    share: Annotated[float, Field(strict=True, allow_inf_nan=False)] = Field(default=0.5, ge=0.01, le=0.75)
    """The part of its time that a relay purges at most, while much is due; otherwise far less. 0.01 to 0.75."""

    @field_validator("kinds", mode="before")
    @classmethod
    def _from_text(cls, kinds: Any) -> Any:
        if not isinstance(kinds, str):
            return kinds
        try:
            return json.loads(kinds)
        except ValueError:
            raise ValueError('must be JSON, such as {"send_invoice": {"succeeded": "7d"}}') from None

    @field_validator("kinds")
    @classmethod
    def _names(cls, kinds: dict[str, KindRetention]) -> dict[str, KindRetention]:
        for kind in kinds:
            try:
                check_name("kind", kind)
            except NameRefused as error:
                raise ValueError(f"has a kind that {error.problem}") from None
        return kinds

    @model_validator(mode="after")
    def _payload_goes_first_by_kind(self) -> Self:
        """Compare what a kind says of a payload with the row's time that it takes over, which never lets it act. The
        other way round, a kind that shortens its rows alone, means that the payload goes with them.
        """
        for kind, own in self.kinds.items():
            for state in _STATES:
                row, payload = getattr(self, state), getattr(own, f"{state}_payload")
                if state not in own.model_fields_set and row is not None and payload is not None and payload > row:
                    raise ValueError(
                        f"kinds.{kind}.{state}_payload must not be longer than {state}, which for all kinds is {row}: "
                        f"{_GOES_WITH_IT}; say how long {state} is kept for {kind}, too"
                    )
        return self
