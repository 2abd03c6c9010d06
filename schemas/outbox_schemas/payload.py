"""The payload contract: an immutable pydantic model that names its kind, its version, its queue and its logical
key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import ConfigDict, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from outbox_schemas.errors import PayloadError
from outbox_schemas.exactness import as_stored, check_exact, is_plainly_exact, text_digest
from outbox_schemas.limit_keys import AfterFailure, KeyLimit, check_key_terms, checked_limit
from outbox_schemas.misspelt import misspelt
from outbox_schemas.names import check_key, check_name
from outbox_schemas.overridden import check_overridden
from outbox_schemas.redaction import redacted
from outbox_schemas.refusals import Unchangeable, reasons
from outbox_schemas.revealing import holds_secret, revealed, with_secrets
from outbox_schemas.sensitive import holds_sensitive
from outbox_schemas.upgrading import Upgrade, check_upgrades, lift

__all__ = ["MAX_PAYLOAD_BYTES", "Document", "Payload"]

MAX_PAYLOAD_BYTES = 64 * 1024


_NUL = "\\u0000"


class Document(NamedTuple):
    """A payload in the form that is stored: its JSON text, and the digest of its canonical form."""

    text: str
    digest: bytes


class Payload(Unchangeable):
    """Arguments of one kind of job: small, by reference, the same for every attempt.

    A subclass sets `kind` (once and for all: stored jobs name it), raises `version` when the meaning of its fields
    changes, may set `queue`, may say `sealed = True` to be stored encrypted (and `accepts_clear = True`
    for as long as jobs from before that are about, which are refused otherwise), and defines `logical_key()`, the name
    of this piece of work within (tenant, kind). It may define `subject_key()`, what that work is about.

    Fields must survive JSON exactly; `Decimal`, `UUID`, `date`, aware `datetime`, `bytes` and sets do, as declared
    types. What nobody may see is marked, `Annotated[str, Sensitive]`, or of pydantic's secret types; both are stored,
    and masked wherever a payload is shown.

    `limit_key()` may name what its jobs share: of one (tenant, group, key) at most `limit_max` run at once. The group
    is the kind unless `limit_group` names another. `ordered = True` runs them one after the other in the order of their
    submission, and `after_failure = "block"` has those behind a failed one wait until a person has decided.

    `upgrades` lifts what was stored by older versions: `{1: from_1_to_2, 2: from_2_to_3}`, functions from the stored
    dict of one version to that of the next.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    kind: ClassVar[str]
    version: ClassVar[int] = 1
    queue: ClassVar[str] = "default"
    upgrades: ClassVar[Mapping[int, Upgrade]] = MappingProxyType({})
    sealed: ClassVar[bool] = False
    accepts_clear: ClassVar[bool] = False
    limit_max: ClassVar[int] = 1
    limit_group: ClassVar[str | None] = None
    ordered: ClassVar[bool] = False
    after_failure: ClassVar[AfterFailure] = "skip"

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Check the class's names when it is defined, not when its first job is written."""
        super().__pydantic_init_subclass__(**kwargs)
        check_overridden(cls, Payload)
        if hasattr(cls, "kind"):
            check_name(f"{cls.__name__}.kind", cls.kind)
        check_name(f"{cls.__name__}.queue", cls.queue)
        if isinstance(cls.version, bool) or not isinstance(cls.version, int) or not 1 <= cls.version < 2**31:
            raise PayloadError(f"{cls.__name__}.version", "must be a whole number from 1 to 2147483647")
        for name in ("sealed", "accepts_clear"):
            if not isinstance(getattr(cls, name), bool):
                raise PayloadError(f"{cls.__name__}.{name}", "must be True or False")
        check_upgrades(cls.__name__, cls.version, cls.upgrades)
        check_key_terms(cls, keyed=cls.limit_key is not Payload.limit_key)
        slip = misspelt(cls, Payload)
        if slip is not None:
            raise PayloadError(
                f"{cls.__name__}.{slip[0]}",
                f"is nothing that a payload declares, and looks like {slip[1]}: correct it, or give something of your "
                "own a name that is less alike, or an underscore in front",
            )

    @classmethod
    def readable_versions(cls) -> list[int]:
        """Return the versions of stored payloads that this class can read: its own, and those with an upgrade."""
        return sorted({*cls.upgrades, cls.version})

    @classmethod
    def from_document(cls, text: str, version: int) -> Self:
        """Return the payload that was stored as `text` by this or an older version of the class.

        A version that has no upgrade is read as it is.

        Raises:
            pydantic.ValidationError: it doesn't fit the class.
            ValueError: it is no JSON that can be read here.
            UpgradeFailed: a function of `upgrades` failed.
        """
        if version in cls.upgrades:
            text = lift(text, version, cls.version, cls.upgrades)
        return cls.model_validate_json(text)

    def logical_key(self) -> str:
        """Return the name of this piece of work; submitting it again gives back the same job.

        Build it from the business event (an invoice number, an account and a period), never from the attempt to
        submit.
        """
        raise PayloadError(
            f"{type(self).__name__}.logical_key", "is not defined: it has to return the name of this piece of work"
        )

    def subject_key(self) -> str | None:
        """Return what this piece of work is about, within (tenant, kind), or None: a document, an account.

        A job submitted with `supersedes` ends those of its subject that still wait. Text as a logical key may be.
        """
        return None

    def limit_key(self) -> str | None:
        """Return what jobs share that must not all run at once, for example an account; None: nothing."""
        return None

    def links(self) -> dict[str, str]:
        """Return addresses that help whoever looks at this job, by name: the customer's page, the invoice, a runbook.

        Shown with a dead letter, where the operator names the module of this class. Put no secret into one.
        """
        return {}

    def checked_key(self) -> str:
        """Return `logical_key()` within its bounds, else raise `NameRefused`."""
        return check_key(self.logical_key())

    def checked_subject(self) -> str:
        """Return `subject_key()` within its bounds, "" for None, else raise `NameRefused`."""
        subject = self.subject_key()
        return "" if subject is None else check_key(subject, "subject_key")

    def checked_limit(self) -> KeyLimit | None:
        """Return the concurrency key of `limit_key()` with its terms, else None. Raises `NameRefused` for a bad key."""
        return None if type(self).limit_key is Payload.limit_key else checked_limit(self)

    def to_document(self, max_bytes: int = MAX_PAYLOAD_BYTES) -> Document:
        """Return what is stored, or raise `PayloadError` naming the field that can't be stored exactly.

        The text is read back and compared before it leaves, so a field type that JSON would silently change is
        refused here and not discovered by a handler.
        """
        text = self._plain_json()
        surely = text is not None
        if text is None:
            text = self._exact_json()
        size = len(text) if text.isascii() else len(text.encode())
        if size > max_bytes:
            raise PayloadError(
                "payload", f"has {size} bytes as JSON; {max_bytes} are allowed: store it elsewhere and send a reference"
            )
        if not surely:
            self._check_round_trip(text)
        return Document(text, text_digest(self.version, text))

    def _plain_json(self) -> str | None:
        """Return the text if a few cheap looks show that it is exact, as they do for nearly all payloads.

        After None, `_exact_json` and `_check_round_trip` accept it all the same, or name the field and the reason.
        """
        if self.__pydantic_extra__ or not is_plainly_exact(self.__dict__):
            return None
        write = self.__pydantic_serializer__.to_json
        try:
            written = write(self, round_trip=True, by_alias=True, warnings=False)
            text = written.decode()
            again = self.__pydantic_validator__.validate_json(as_stored(text))
            # The first compares values, the second how they are written: 1 equals True and 1.0.
            same = (
                again.__dict__ == self.__dict__
                and write(again, round_trip=True, by_alias=True, warnings=False) == written
            )
        except (PydanticSerializationError, ValueError, TypeError):
            return None
        return text if same and again.__pydantic_private__ == self.__pydantic_private__ and _NUL not in text else None

    def _exact_json(self) -> str:
        try:
            dumped = self.model_dump(mode="python", round_trip=True, by_alias=True, warnings="error")
            check_exact(dumped)
            if not holds_secret(dumped):
                return self.model_dump_json(round_trip=True, by_alias=True, warnings="error")
            check_exact(revealed(dumped))
            masked = self.model_dump(mode="json", round_trip=True, by_alias=True, warnings="error")
            return to_json(with_secrets(masked, dumped)).decode()
        except (PydanticSerializationError, ValueError, RecursionError, TypeError) as error:
            # The library's message may quote the value, so only its nature is passed on.
            raise PayloadError(
                "payload", f"can't be written as JSON ({type(error).__name__}); use plain field types"
            ) from None

    def _check_round_trip(self, text: str) -> None:
        try:
            again = type(self).model_validate_json(as_stored(text))
        except ValidationError as error:
            path, rule = reasons(error)[0]
            raise PayloadError(path, f"can't be read back from JSON: {rule}") from None
        if again != self:
            raise PayloadError(
                self._first_difference(again), "changes on its way through JSON; declare a type that survives it"
            )

    def _first_difference(self, other: Self) -> str:
        names = type(self).model_fields
        changed = (name for name in names if getattr(self, name, None) != getattr(other, name, None))
        return f"payload.{next(changed, '?')}"

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Mask what is sensitive: a payload's text goes into logs and tracebacks."""
        if not holds_sensitive(type(self)):
            yield from super().__repr_args__()
            return
        yield from redacted(self).items()
