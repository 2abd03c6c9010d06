"""The contract of the one job kind: which statement to render, by reference and never by value."""

from typing import Annotated, ClassVar

from pydantic import Field

from outbox_schemas import Payload

AccountId = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}$")]
"""Lower case only, so that keys stay distinct on file systems that ignore case."""
Period = Annotated[str, Field(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])$")]
"""A calendar month, YYYY-MM."""
FormatVersion = Annotated[int, Field(strict=True, ge=1, le=9999)]
"""Grows whenever the same input would have to give other bytes."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""Lower-case hexadecimal digest."""


class RenderStatement(Payload):
    """Render one statement.

    `source_sha256` pins the input as it was at submission. It is no part of the key, so asking again after
    the input has changed is a conflict that a person sees, not a second document under the same name.
    """

    kind: ClassVar[str] = "render_statement"
    version: ClassVar[int] = 1
    queue: ClassVar[str] = "statements"

    account_id: AccountId
    period: Period
    format_version: FormatVersion
    source_sha256: Sha256

    def logical_key(self) -> str:
        """Return the identity of the work, for example `acct_91/2026-05/v3`."""
        return f"{self.account_id}/{self.period}/v{self.format_version}"

    def object_key(self) -> str:
        """Return where the document lives in the store; every attempt names the same place."""
        return f"statements/{self.logical_key()}.pdf"


class ChargeStatement(Payload):
    """Charge the account for one statement; follows from its rendering."""

    kind: ClassVar[str] = "charge_statement"
    version: ClassVar[int] = 1
    queue: ClassVar[str] = "statements"

    account_id: AccountId
    period: Period
    format_version: FormatVersion
    amount_cents: Annotated[int, Field(strict=True, ge=1)]

    def logical_key(self) -> str:
        """Return the identity of the work: a statement is charged once."""
        return f"{self.account_id}/{self.period}/v{self.format_version}"


class MailStatement(Payload):
    """Tell the customer that a statement is there; follows from its charge."""

    kind: ClassVar[str] = "mail_statement"
    version: ClassVar[int] = 1
    queue: ClassVar[str] = "statements"

    account_id: AccountId
    period: Period
    format_version: FormatVersion

    def logical_key(self) -> str:
        """Return the identity of the work: one mail a statement."""
        return f"{self.account_id}/{self.period}/v{self.format_version}"
