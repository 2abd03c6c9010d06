"""What a process shows, and where. The TOML table `[telemetry]`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from outbox.settings.listen_address import Address, read_address

__all__ = ["TelemetrySettings"]


class TelemetrySettings(BaseModel):
    """What a process shows of itself. Nothing listens unless it is set here."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    listen: str | None = None
    """Where relay and consumer answer `/live`, `/ready`, `/progress` and `/metrics` over HTTP: a port, which is then
    the loopback interface's, or an address and a port, such as `0.0.0.0:9464` or `[::]:9464`. Port 0: a free one, told
    in the log. Unset: nothing listens."""
    names: Annotated[int, Field(strict=True)] = Field(default=10, ge=1, le=1000)
    """How many queues, and how many kinds in their queues, have figures of their own, the first ones that a process
    meets; all others together are `other`. 1 to 1000."""

    spans_file: str | None = None
    """A file that spans are appended to, one line of JSON each, for whoever has no collector; see docs/telemetry.md.
    Needs the extra `telemetry`. Unset: none."""
    spans_file_bytes: Annotated[int, Field(strict=True)] = Field(default=67_108_864, ge=65_536, le=17_179_869_184)
    """So many bytes at most has that file; what would make it longer begins it anew, and the one before is kept beside
    it as `.1`. 65536 to 17179869184."""
    traces_per_s: Annotated[int, Field(strict=True)] = Field(default=10, ge=1, le=100_000)
    """How many attempts, at most, a consumer traces in a second, and a relay messages: what bounds the price of
    tracing. 1 to 100000."""
    stuck_after_s: Annotated[float, Field(strict=True)] = Field(default=30.0, ge=0.5, le=3600, allow_inf_nan=False)
    """For how long a part that has something to do may do nothing of it before `/progress` calls it stuck. 0.5 to
    3,600 seconds."""

    @field_validator("listen", mode="before")
    @classmethod
    def _from_number(cls, value: object) -> object:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("listen")
    @classmethod
    def _listen(cls, text: str | None) -> str | None:
        if text is not None:
            read_address(text)
        return text

    def address(self) -> Address | None:
        """Return where to listen; None: nowhere."""
        return None if self.listen is None else read_address(self.listen)
