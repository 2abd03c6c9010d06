"""What can be set, with its unit, default and range; `load` merges the layers into one frozen `Settings`.

A later layer wins, and what it leaves unset stays as it was: defaults, then one TOML file (`OUTBOX_CONFIG`
or `--config`; no other place is searched), then the environment, then options of the command line. The
environment's name of a setting is `OUTBOX_` and its
path in capitals: `OUTBOX_SCHEMA`, `OUTBOX_RELAY_BATCH`. An empty variable counts as unset; a list is
written `a,b`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from sqlalchemy import Engine

from outbox.errors import NameRefused, SettingsError
from outbox.settings.identifiers import schema_identifier
from outbox.settings.layers import Layer, environment_layer, explain, merge, nested, override_layer, toml_layer
from outbox.settings.queue_slots import MOST_SLOTS, QueueSlots, read_queues
from outbox.settings.retention import RetentionSettings
from outbox.settings.telemetry import TelemetrySettings
from outbox.settings.urls import AmqpAddress, amqp_parameters, database_conninfo, sqlalchemy_engine
from outbox.texts import masking
from outbox_schemas.hint import MAX_HINT_JOBS
from outbox_schemas.names import check_name

__all__ = ["ConsumerSettings", "RelaySettings", "Settings", "load"]

# Strict: 1.5 isn't a whole number of jobs, and neither "1000" nor true in a TOML file is a number.
Count = Annotated[int, Field(strict=True)]
Seconds = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class _Section(BaseModel):
    # Without hide_input_in_errors a validation error repeats the secret that it is about.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class RelaySettings(_Section):
    """How the relay releases hints. The TOML table `[relay]`."""

    poll_min_s: Seconds = Field(default=0.002, ge=0.0005, le=60)
    """Seconds between two looks for new work while there is some. 0.0005 to 60."""
    poll_max_s: Seconds = Field(default=0.02, ge=0.001, le=60)
    """Seconds between two looks when there has been none for a while and writers don't wake the relay. 0.001 to 60."""
    wakeups: bool = Field(default=True, strict=True)
    """Whether a commit wakes a relay that sleeps. False: the relay only looks, and writers never notify."""
    batch: Count = Field(default=1000, ge=1, le=10_000)
    """Hints released by one statement, at most. 1 to 10000."""
    runway: Count = Field(default=2000, ge=1, le=1_000_000)
    """Released jobs that may await a claim, per queue, at most: as many as consumers take in a moment; the rest of a
    backlog stays in PostgreSQL. 1 to 1000000."""
    window: Count = Field(default=1000, ge=1, le=100_000)
    """Messages that may await their confirm at once. 1 to 100000."""
    ids_per_message: Count = Field(default=50, ge=1, le=MAX_HINT_JOBS)
    """Job ids in one message under load, at most. 1 to 100, and if set no more than `batch`."""
    rehint_after_s: Seconds = Field(default=10, ge=0.1, le=86_400)
    """Seconds until a released hint that nobody claimed is owed again, the first time. 0.1 to 86400."""
    rehint_busy_after_s: Seconds = Field(default=300, ge=0.1, le=86_400)
    """The same while the broker still holds messages in the queue. At least `rehint_after_s`, to 86400."""
    sweep_every_s: Seconds = Field(default=0.5, ge=0.05, le=60)
    """Seconds between two looks for expired leases, lost hints and passed deadlines. 0.05 to 60."""
    confirm_timeout_s: Seconds = Field(default=30, ge=1, le=600)
    """Seconds that a publish may await its confirm before the connection is given up and its hints are owed
    again. 1 to 600."""
    grace_s: Seconds = Field(default=30, ge=0, le=3600)
    """Seconds from SIGTERM to the end, at most. 0 to 3600."""
    connect_backoff_max_s: Seconds = Field(default=10, ge=0.1, le=300)
    """Seconds between two attempts to reach a server that is away, at most. 0.1 to 300."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        _at_most(self.poll_min_s, "relay.poll_min_s", self.poll_max_s, "relay.poll_max_s")
        if "ids_per_message" in self.model_fields_set:  # the default is only a limit, whatever the batch
            _at_most(self.ids_per_message, "relay.ids_per_message", self.batch, "relay.batch")
        _at_most(self.rehint_after_s, "relay.rehint_after_s", self.rehint_busy_after_s, "relay.rehint_busy_after_s")
        return self


class ConsumerSettings(_Section):
    """How a consumer takes and runs jobs. The TOML table `[consumer]`."""

    queues: tuple[str, ...] = Field(default=("default",), min_length=1, max_length=100)
    """The queues that it works for, each once. Unset: those of the handlers' payload types. 1 to 100 names. `mail=20`
    gives a queue 20 slots of its own, 1 to 1000; the others share `concurrency`."""
    concurrency: Count = Field(default=8, ge=1, le=1000)
    """Handlers that run at once, for all queues without a number of their own. 1 to 1000, together with these
    numbers."""
    batch: Count = Field(default=1000, ge=1, le=10_000)
    """Jobs claimed, heartbeated or completed by one statement, at most. 1 to 10000."""
    grace_s: Seconds = Field(default=30, ge=0, le=86_400)
    """Seconds that running jobs have to finish after SIGTERM. 0 to 86400."""
    brokerless_after_s: Seconds = Field(default=3, ge=0, le=3600)
    """Seconds without the broker until jobs are taken straight from PostgreSQL. 0 to 3600."""
    heartbeat_s: Seconds | None = Field(default=None, ge=0.1, le=3600)
    """Seconds between two heartbeats. Unset: a third of the shortest lease. 0.1 to 3600."""
    pool_size: Count | None = Field(default=None, ge=3, le=1000)
    """Database connections that handlers and completions with `apply` share; the loops have theirs besides. Unset: two
    for each slot. 3 to 1000."""

    @field_validator("queues")
    @classmethod
    def _queues(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(queue) for queue in read_queues(texts))

    @model_validator(mode="after")
    def _slots(self) -> Self:
        own = [queue.slots for queue in self.queue_slots() if queue.slots is not None]
        shared = self.concurrency if len(own) < len(self.queues) else 0
        if own and sum(own) + shared > MOST_SLOTS:
            rest = f" and consumer.concurrency ({shared}) for the others" if shared else ""
            raise ValueError(
                f"the numbers of consumer.queues ({sum(own)}){rest} must not be above {MOST_SLOTS} together; lower"
                " some, or run more consumers"
            )
        return self

    def queue_slots(self) -> tuple[QueueSlots, ...]:
        """Return the queues as they were read, each with its own number of slots or None."""
        return read_queues(self.queues)


class Settings(_Section):
    """All settings of one process. Frozen; secrets are `SecretStr` and never printed."""

    database_url: SecretStr | None = None
    """PostgreSQL's address, in any form that `outbox.settings.urls` reads. Unset: libpq's PGHOST, PGDATABASE or
    PGSERVICE decide."""
    amqp_url: SecretStr | None = None
    """RabbitMQ's address. Unset: consumers take jobs straight from PostgreSQL."""
    schema_name: str = "outbox"
    """The PostgreSQL schema that holds the tables: any legal identifier of 1 to 63 bytes. In the file:
    `schema`."""
    amqp_prefix: str = "outbox"
    """First part of the names of all exchanges and queues at the broker. 1 to 100 letters, digits and . _
    -"""
    queue_type: Literal["quorum", "classic"] = "quorum"
    """Type of the hint queues. A queue that exists already keeps its type."""
    keys_file: Path | None = None
    """The key file for sealed jobs, see docs/encryption.md. Unset: sealed jobs are left to others."""
    inbox_keep_s: Seconds | None = Field(default=None, ge=3600, le=315_360_000)
    """Seconds for which `once` honours a key; the relay deletes older ones. Unset: for ever. 3600 to 315360000."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important event that is logged."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """Lines for people, or one JSON object a line; `auto`: lines for people on a terminal, else JSON."""
    relay: RelaySettings = Field(default_factory=RelaySettings)
    consumer: ConsumerSettings = Field(default_factory=ConsumerSettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)

    @field_validator("schema_name")
    @classmethod
    def _schema(cls, name: str) -> str:
        try:
            schema_identifier(name)
        except SettingsError as error:
            raise ValueError(str(error).removeprefix("schema: ")) from None
        return name

    @field_validator("amqp_prefix")
    @classmethod
    def _prefix(cls, name: str) -> str:
        _valid_name("amqp_prefix", name)
        return name

    def conninfo(self, application_name: str = "outbox") -> dict[str, str]:
        """Return libpq keywords for psycopg; `SettingsError` if no database is named."""
        return database_conninfo(_revealed(self.database_url), application_name=application_name)

    def engine(self, application_name: str = "outbox", **options: Any) -> Engine:
        """Return a SQLAlchemy Engine for the database; `options` are those of `create_engine`."""
        return sqlalchemy_engine(_revealed(self.database_url), application_name=application_name, **options)

    def amqp(self) -> AmqpAddress | None:
        """Return the broker's address, or None if no broker is set."""
        url = _revealed(self.amqp_url)
        return amqp_parameters(url) if url else None


def load(config: Path | None = None, env: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """Return the merged settings and register their secrets for masking.

    `overrides` are the command line's: fields by name, sections as mappings (`relay={"batch": 5}`); None
    means unset.

    Raises:
        SettingsError: the file can't be read, a name isn't known, or a value is refused. One line that
            names the setting,
            where it was set, the limit and the remedy.
    """
    env = os.environ if env is None else env
    path = config or (Path(env["OUTBOX_CONFIG"]) if env.get("OUTBOX_CONFIG") else None)
    layers: list[Layer] = [toml_layer(path, Settings)] if path else []
    layers += [environment_layer(env, Settings), override_layer(overrides, Settings)]
    merged = merge(layers)
    _register_raw_secrets(merged, env)
    try:
        settings = Settings.model_validate(nested(merged))
    except ValidationError as error:
        raise explain(error, Settings, merged) from None
    _check_addresses(settings, merged, env)
    return settings


def _check_addresses(settings: Settings, layer: Layer, env: Mapping[str, str]) -> None:
    """Parse both addresses, so that a typo is found at the start, and register the passwords in them."""
    if settings.database_url is not None:
        source = layer["database_url"].source
        address = settings.database_url.get_secret_value()
        keywords = database_conninfo(address, variable=source, environ=env)
        secrets = [keywords[name] for name in ("password", "sslpassword", "oauth_client_secret") if name in keywords]
        for secret in secrets:
            masking.register(secret)
        if not secrets:
            masking.forget(address)  # people may read it
    if settings.amqp_url is not None:
        url, source = settings.amqp_url.get_secret_value(), layer["amqp_url"].source
        masking.register(amqp_parameters(url, variable=source).password)


def _register_raw_secrets(layer: Layer, env: Mapping[str, str]) -> None:
    """Register the addresses as a whole, since one that can't be parsed may hide a password anywhere."""
    addresses = [layer[field].value for field in ("database_url", "amqp_url") if field in layer]
    for secret in (*addresses, env.get("PGPASSWORD")):
        if isinstance(secret, str):
            masking.register(secret)


def _revealed(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret is not None else None


def _at_most(low: float, low_name: str, high: float, high_name: str) -> None:
    if low > high:
        raise ValueError(
            f"{low_name} ({low:g}) must not be above {high_name} ({high:g}); lower the one or raise the other"
        )


def _valid_name(field: str, name: str) -> None:
    try:
        check_name(field, name)
    except NameRefused as error:
        raise ValueError(error.problem) from None
