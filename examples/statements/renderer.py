"""From an account period to a PDF: a pure function, the same bytes every time and everywhere."""

import os
from decimal import Decimal
from io import BytesIO
from typing import Any
from xml.sax.saxutils import escape

from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.platypus import Flowable, Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

from statements.accounts import AccountPeriod, Line

FORMAT_VERSIONS = (1, 2)
"""1 lists the bookings, 2 adds the balance after each. A change of layout is a new number, never an edit."""

# reportlab prefers this variable to its own fixed date; two workers may not disagree about it.
os.environ.pop("SOURCE_DATE_EPOCH", None)

_TEXT = ParagraphStyle("text", fontName="Helvetica", fontSize=9, leading=12)
_TITLE = ParagraphStyle("title", parent=_TEXT, fontName="Helvetica-Bold", fontSize=16, leading=22)
_HEAD = TableStyle(
    [
        ("FONT", (0, 0), (-1, -1), "Helvetica", 9),
        ("FONT", (0, 0), (-1, 0), "Helvetica-Bold", 9),
        ("LINEBELOW", (0, 0), (-1, 0), 0.7, colors.black),
        ("LINEABOVE", (0, -1), (-1, -1), 0.7, colors.black),
        ("FONT", (0, -1), (-1, -1), "Helvetica-Bold", 9),
        ("ALIGN", (2, 0), (-1, -1), "RIGHT"),
        ("VALIGN", (0, 0), (-1, -1), "TOP"),
        ("TOPPADDING", (0, 0), (-1, -1), 2),
        ("BOTTOMPADDING", (0, 0), (-1, -1), 2),
    ]
)


class NotRenderableError(ValueError):
    """The input can't be shown by this format; another attempt would end the same way."""


def render(account_period: AccountPeriod, format_version: int) -> bytes:
    """Return the statement as a PDF document.

    Neither clock, time zone nor locale enters it; the versions of the libraries do, as in any renderer.
    Raises NotRenderableError for an unknown format version or text outside of the built-in fonts.
    """
    if format_version not in FORMAT_VERSIONS:
        raise NotRenderableError(f"format version {format_version} is not one of {FORMAT_VERSIONS}")
    _require_printable(account_period)
    buffer = BytesIO()
    document = SimpleDocTemplate(
        buffer,
        pagesize=A4,
        leftMargin=20 * mm,
        rightMargin=20 * mm,
        title=f"Statement {account_period.account_id} {account_period.period}",
        author="Example Bank",
        invariant=1,  # a fixed date and document id
        pageCompression=0,  # two builds of zlib may pack the same page differently
        lang="en",
    )
    document.build(_content(account_period, format_version), onFirstPage=_footer, onLaterPages=_footer)
    return buffer.getvalue()


def _content(account_period: AccountPeriod, format_version: int) -> list[Flowable]:
    facts = [
        ("Account", account_period.account_id),
        ("Holder", account_period.holder),
        ("Period", account_period.period),
        ("Currency", account_period.currency),
        ("Opening balance", money(account_period.opening_balance)),
        ("Closing balance", money(account_period.closing_balance)),
    ]
    rows = [[_text(name), _text(value)] for name, value in facts]
    return [
        Paragraph("Account statement", _TITLE),
        Table(rows, colWidths=[40 * mm, 130 * mm], hAlign="LEFT"),
        Spacer(1, 6 * mm),
        _bookings(account_period, running=format_version >= 2),
    ]


def _bookings(account_period: AccountPeriod, *, running: bool) -> Flowable:
    balance = account_period.opening_balance
    rows: list[list[Any]] = [["Date", "Booking", "Amount"]]
    for line in account_period.lines:
        balance += line.amount
        rows.append(_booking(line, balance if running else None))
    rows.append(["", "Closing balance", money(balance)])
    widths = [25 * mm, 105 * mm, 40 * mm]
    if running:
        rows[0].append("Balance")
        rows[-1] = ["", "Closing balance", "", money(balance)]
        widths = [25 * mm, 75 * mm, 35 * mm, 35 * mm]
    return Table(rows, colWidths=widths, repeatRows=1, style=_HEAD, hAlign="LEFT")


def _booking(line: Line, balance: Decimal | None) -> list[Any]:
    row = [line.day.isoformat(), _text(line.description), money(line.amount)]
    return row if balance is None else [*row, money(balance)]


def _text(value: str) -> Flowable:
    # Paragraph reads a small markup language: a customer's "<b>" has to stay text.
    return Paragraph(escape(value), _TEXT)


def money(amount: Decimal) -> str:
    """Return an amount for people, for example `-1,234.50`, whatever the locale."""
    return f"{amount:,.2f}"


def _footer(canvas: Any, document: Any) -> None:
    canvas.setFont("Helvetica", 8)
    canvas.drawRightString(A4[0] - 20 * mm, 12 * mm, f"Page {document.page}")


def _require_printable(account_period: AccountPeriod) -> None:
    for text in (account_period.holder, *(line.description for line in account_period.lines)):
        try:
            text.encode("cp1252")
        except UnicodeEncodeError as error:
            raise NotRenderableError(f"the built-in fonts cannot show {text[:40]!a}") from error
