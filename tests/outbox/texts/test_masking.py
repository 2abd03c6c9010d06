"""Secrets are hidden in every form in which a driver, a log or a traceback writes them; terminals stay unharmed."""

from __future__ import annotations

import json
import subprocess
import sys
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox.texts import masking
from outbox.texts.masking import MASK, mask, masked_line, named, printable, register, shortened, traceback_text

NASTY = "p@ss%/:#?[x]'\" é\\"


pytestmark = pytest.mark.usefixtures("fresh_registry")


@pytest.mark.parametrize(
    "written",
    [
        NASTY,
        quote(NASTY, safe=""),
        quote(NASTY),
        quote_plus(NASTY),
        quote(NASTY, safe="").replace("%4", "%4").lower(),
        repr(NASTY),
        repr({"it's": NASTY}),
        ascii(NASTY),
        json.dumps({"p": NASTY}),
        json.dumps({"p": NASTY}, ensure_ascii=False),
        "pass='" + NASTY.replace("\\", "\\\\").replace("'", "\\'") + "'",
    ],
)
def test_a_registered_secret_is_hidden_in_every_encoding(written: str) -> None:
    """Raw, percent-encoded in either case, repr, JSON and conninfo forms are all replaced."""
    register(NASTY)
    hidden = mask(f"could not connect with {written} to host")
    assert MASK in hidden
    assert "p@ss" not in hidden
    assert "p%40ss" not in hidden
    assert "x]" not in hidden
    assert hidden.endswith(" to host")


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=8, max_size=30))
def test_any_long_registered_secret_disappears(secret: str) -> None:
    """No registered secret of eight characters or more survives, whatever it is made of and whatever touches it."""
    masking.forget_all()
    register(secret)
    rest = mask(f"x{secret}y").replace(MASK, "", 1)
    assert secret not in rest


def test_short_secrets_dont_garble_words() -> None:
    """A short secret is hidden where it stands alone, and one of two characters only where a secret is expected."""
    register("user")
    register("a")
    assert mask("username of user 'user'") == f"username of {MASK} '{MASK}'"
    assert (
        mask("a cat; postgresql://me:a@host/db password=a") == f"a cat; postgresql://me:{MASK}@host/db password={MASK}"
    )


def test_development_passwords_leave_messages_readable() -> None:
    """A password that is an everyday word of the trade is hidden as itself, not as a part of other words."""
    register("postgres")
    assert mask("postgresql://postgres:postgres@h/db") == f"postgresql://{MASK}:{MASK}@h/db"


def test_the_longer_of_two_secrets_wins() -> None:
    """A secret that begins with another one is replaced whole, so that no tail of it is left."""
    register("hunter22")
    register("hunter22-and-more")
    assert mask("<hunter22-and-more>") == f"<{MASK}>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://u:s3cret@h/db", f"postgresql://u:{MASK}@h/db"),
        ("amqps://u:s3@cret@h/", f"amqps://u:{MASK}@h/"),
        ("see postgresql+psycopg://u:s3cret@h/db?x=1 now", f"see postgresql+psycopg://u:{MASK}@h/db?x=1 now"),
        ("redis://:s3cret@h", f"redis://:{MASK}@h"),
        ("host=h password=s3cret dbname=d", f"host=h password={MASK} dbname=d"),
        ("host=h password='s3 cret' x", f"host=h password={MASK} x"),
        ("PGPASSWORD=s3cret psql", f"PGPASSWORD={MASK} psql"),
        ("?sslpassword=s3cret&a=b", f"?sslpassword={MASK}&a=b"),
        ("{'password': 's3cret', 'a': 1}", f"{{'password': '{MASK}', 'a': 1}}"),
        ('{"api_key": "s3cret"}', f"{{\"api_key\": '{MASK}'}}"),
    ],
)
def test_unregistered_secrets_are_hidden_by_their_shape(text: str, expected: str) -> None:
    """Addresses and key-value pairs give a secret away by where it stands."""
    assert mask(text) == expected


def test_innocent_text_stays() -> None:
    """Words about passwords, plain URLs and mail addresses are left alone."""
    text = "password authentication failed for user; see https://example.org/a:b?c=d or mail me@example.org"
    assert mask(text) == text


def test_masking_a_hostile_text_is_fast() -> None:
    """Text made to send a backtracking pattern astray costs about linear time."""
    for hostile in (
        "a" * 300_000,
        "a://" * 60_000,
        "password=" * 30_000,
        "x:" * 100_000,
        "'" * 200_000,
        "://u:" * 40_000,
    ):
        mask(hostile)


def test_the_registry_is_bounded() -> None:
    """Registering again and again keeps a bounded number of secrets, the newest."""
    for number in range(masking.MAX_REGISTERED + 50):
        register(f"secret-number-{number:05}")
    assert mask("secret-number-00000 secret-number-00305") == f"secret-number-00000 {MASK}"


def test_no_cut_leaves_a_part_of_a_secret() -> None:
    """Texts are cut before they are looked through, wherever that is."""
    register("~[canary]~#")
    text = "~[canary]~# " * 40_000
    for limit in range(100, 130):
        assert "~" not in masked_line(text, limit)
    for size in range(12):
        assert "~" not in traceback_text(ValueError("." * size + text))


def test_tracebacks_are_masked_and_bounded() -> None:
    """The text of an exception, its causes and 50 MB of message are masked and cut, and a broken one is named."""

    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    register("canary-secret")
    try:
        try:
            raise ValueError("it was canary-secret")
        except ValueError as cause:
            raise RuntimeError("postgresql://u:other-secret@h/db") from cause
    except RuntimeError as error:
        shown = traceback_text(error)
    assert "canary-secret" not in shown
    assert "other-secret" not in shown
    assert "ValueError" in shown
    assert len(traceback_text(ValueError("canary-secret" + "x" * 50_000_000))) < 20_000
    assert "BrokenError" in traceback_text(BrokenError())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain é 漢字", "plain é 漢字"),
        ("a\x1b[31mred\x1b]0;title\x07b", "a[31mred]0;titleb"),
        ("user\u202egnp.exe\u2066", "usergnp.exe"),
        ("two\nlines\r\n\tthree", "two lines three"),
        ("nul\0 del\x7f c1\x9b bom\ufeff lone\ud800", "nul del c1 bom lone"),
        ("line\u2028separator", "line separator"),
        ("", ""),
    ],
)
def test_printable_text_cant_drive_a_terminal(text: str, expected: str) -> None:
    """Control, format, bidirectional and surrogate characters are gone, and white space is one space."""
    assert printable(text) == expected


def test_printable_text_is_bounded() -> None:
    """A long text is cut within the limit and shows that it was."""
    assert printable("x" * 10, 10) == "x" * 10
    assert printable("x" * 11, 10) == "x" * 9 + "…"
    assert len(masked_line("y" * 1_000_000, 50)) == 50


@pytest.mark.parametrize(
    "crash",
    [
        "raise ValueError(secret)",
        "def f(): raise ValueError(secret)\nt = threading.Thread(target=f); t.start(); t.join()",
        "class D:\n    def __del__(self): raise ValueError(secret)\nD()",
    ],
    ids=["main", "thread", "destructor"],
)
def test_what_python_prints_by_itself_is_masked(crash: str) -> None:
    """Uncaught exceptions of the main thread, other threads and destructors are printed without the secret."""
    program = f"""import threading
from outbox.texts import masking
secret = "canary" + "-secret-value"
masking.register(secret)
masking.install_excepthook()
{crash}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "ValueError" in done.stderr
    assert "canary-secret-value" not in done.stderr + done.stdout
    assert MASK in done.stderr


@pytest.mark.parametrize("limit", [20, 200, 480])
@pytest.mark.parametrize("size", [0, 19, 20, 21, 200, 5000])
def test_a_shortened_text_keeps_its_end(size: int, limit: int) -> None:
    """What fits is left as it is; of the rest, more of the end than of the beginning stays, within the limit."""
    text = "".join(str(number % 10) for number in range(size))
    found = shortened(text, limit)
    assert len(found) <= limit
    assert found == text if size <= limit else text.startswith(found.partition(" … ")[0])
    assert text.endswith(found.rpartition(" … ")[2])


def test_what_has_no_text_has_no_colon() -> None:
    """A class alone is told alone."""
    assert (named("ConnectTimeout", ""), named("Gone", " \n"), named("Gone", "now")) == (
        "ConnectTimeout",
        "Gone",
        "Gone: now",
    )
