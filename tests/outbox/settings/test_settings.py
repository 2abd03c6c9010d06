"""Settings: layers merge, typos are refused with a suggestion, and no error shows a secret."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from outbox.errors import SettingsError
from outbox.settings import ConsumerSettings, RelaySettings, Settings, load
from outbox.settings.retention import RetentionSettings
from outbox.settings.telemetry import TelemetrySettings
from outbox.texts import masking
from support.settings_page import descriptions

pytestmark = pytest.mark.usefixtures("fresh_registry")


@pytest.fixture
def toml(tmp_path: Path) -> Any:
    """Write a settings file and return its path."""

    def write(text: str | bytes) -> Path:
        path = tmp_path / "outbox.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def refusal(config: Path | None = None, env: Mapping[str, str] | None = None, **overrides: Any) -> str:
    """Return the one line with which these settings are refused."""
    with pytest.raises(SettingsError) as caught:
        load(config, env or {}, **overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_defaults_need_nothing() -> None:
    """Without any layer there are defaults, and no address."""
    settings = load(env={})
    assert settings == Settings()
    assert (settings.database_url, settings.amqp_url, settings.schema_name) == (None, None, "outbox")
    assert settings.relay == RelaySettings()
    assert settings.consumer.queues == ("default",)
    assert settings.amqp() is None


def test_every_setting_is_documented() -> None:
    """Below each field stands its description, so that the guide can be made from the model."""
    for model in (Settings, RelaySettings, ConsumerSettings, RetentionSettings, TelemetrySettings):
        assert model.model_fields.keys() - descriptions(model).keys() <= {
            "relay",
            "consumer",
            "retention",
            "telemetry",
        }


def test_a_later_layer_wins_and_unset_stays_unset(toml: Any) -> None:
    """File, environment and options each override only what they set."""
    path = toml(
        "schema = 'from_file'\namqp_prefix = 'file'\nlog_level = 'debug'\n[relay]\nbatch = 10\nwindow = 11\n"
        "ids_per_message = 5\n[consumer]\nqueues = ['a', 'b']\n"
    )
    env = {"OUTBOX_CONFIG": str(path), "OUTBOX_AMQP_PREFIX": "env", "OUTBOX_RELAY_WINDOW": "12", "OUTBOX_LOG_LEVEL": ""}
    settings = load(env=env, relay={"window": 13, "batch": None}, log_format="json", log_level=None)
    assert (settings.schema_name, settings.amqp_prefix) == ("from_file", "env")
    assert (settings.log_level, settings.log_format) == ("debug", "json")
    assert (settings.relay.batch, settings.relay.window, settings.relay.runway) == (10, 13, 2000)
    assert settings.consumer.queues == ("a", "b")
    assert load(env={**env, "OUTBOX_CONSUMER_QUEUES": " c , d,"}).consumer.queues == ("c", "d")


def test_queues_may_have_slots_of_their_own(toml: Any) -> None:
    """File, environment and options write a queue's number alike; the number is read, and the text kept tidy."""
    path = toml("[consumer]\nqueues = ['mail=20', 'export = 2', 'other']\n")
    expected = [("mail", 20), ("export", 2), ("other", None)]
    for settings in (
        load(path, {}),
        load(env={"OUTBOX_CONSUMER_QUEUES": "mail=20, export = 2 ,other"}),
        load(env={}, consumer={"queues": ("mail=20", "export=02", "other")}),
    ):
        assert [tuple(queue) for queue in settings.consumer.queue_slots()] == expected
        assert settings.consumer.queues == ("mail=20", "export=2", "other")
    assert [tuple(queue) for queue in load(env={}).consumer.queue_slots()] == [("default", None)]


def test_all_slots_of_a_consumer_are_bounded_together() -> None:
    """The shared slots count only where a queue uses them; an error names both settings and where they were set."""
    load(env={}, consumer={"queues": ("a=500", "b=500"), "concurrency": 1000})
    load(env={}, consumer={"queues": ("a", "b"), "concurrency": 1000})
    load(env={}, consumer={"queues": ("a=500", "b"), "concurrency": 500})
    found = refusal(env={"OUTBOX_CONSUMER_QUEUES": "a=500,b"}, consumer={"concurrency": 501})
    assert "consumer.queues (500) and consumer.concurrency (501) for the others must not be above 1000" in found
    assert "OUTBOX_CONSUMER_QUEUES in the environment" in found
    assert "consumer.concurrency on the command line" in found


@pytest.mark.parametrize(
    ("text", "value"), [("false", False), ("OFF", False), ("0", False), ("True", True), (" yes ", True)]
)
def test_a_switch_is_read_from_a_variable(text: str, value: bool) -> None:
    """The usual words turn a switch on and off; whatever else is refused by name."""
    assert load(env={"OUTBOX_RELAY_WAKEUPS": text}).relay.wakeups is value
    assert "OUTBOX_RELAY_WAKEUPS" in refusal(env={"OUTBOX_RELAY_WAKEUPS": "perhaps"})


def test_the_given_file_wins_over_the_variable(toml: Any, tmp_path: Path) -> None:
    """`config` replaces OUTBOX_CONFIG; nothing else is searched."""
    path = toml("amqp_prefix = 'given'")
    assert load(path, {"OUTBOX_CONFIG": str(tmp_path / "missing.toml")}).amqp_prefix == "given"


def test_settings_are_frozen_and_hide_secrets() -> None:
    """A loaded model can't be changed, and its text shows no secret."""
    settings = load(env={"OUTBOX_DATABASE_URL": "postgresql://u:canary-secret@h/db"})
    with pytest.raises(ValueError, match="frozen"):
        settings.schema_name = "other"  # type: ignore[misc]
    assert "canary" not in f"{settings!r} {settings} {settings.model_dump_json()}"
    assert settings.conninfo("app")["password"] == "canary-secret"
    assert settings.conninfo("app")["application_name"] == "app"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[relay]\nbacth = 3", "relay.bacth in {path} is not a setting; did you mean relay.batch?"),
        ("batch = 3", "did you mean relay.batch?"),
        ("[consumer]\nqueue = 'a'", "did you mean consumer.queues?"),
        ("schema_nam = 'x'", "did you mean schema?"),
        ("zzzz = 1", "known are amqp_prefix"),
        ("relay = 3", "relay in {path} must be a table of settings, [relay]"),
        ("[relay.batch]\nx = 1", "relay.batch in {path}: must be a valid integer; it is a table"),
        ("[relay]\nbatch = 0", "relay.batch in {path}: must be greater than or equal to 1; it is 0"),
        ("[relay]\nbatch = '9'", "relay.batch in {path}: must be a valid integer; it is '9'"),
        ("[relay]\nbatch = true", "relay.batch in {path}: must be a valid integer; it is True"),
        ("[relay]\npoll_max_s = inf", "relay.poll_max_s in {path}: must be"),
        ("[relay]\npoll_max_s = nan", "relay.poll_max_s in {path}: must be"),
        ("[consumer]\nqueues = []", "consumer.queues in {path}"),
        ("[consumer]\nqueues = ['a', 'a']", "must name each queue once"),
        ("[consumer]\nqueues = ['a b']", "consumer.queues in {path}: may hold only ASCII"),
        ("[consumer]\nqueues = ['a', 'a=2']", "must name each queue once"),
        (
            "[consumer]\nqueues = ['a=0']",
            "consumer.queues in {path}: must give queue a a whole number of slots from 1 to",
        ),
        ("[consumer]\nqueues = ['a=1001']", "from 1 to 1000, as in a=20"),
        ("[consumer]\nqueues = ['a=']", "must give queue a a whole number"),
        ("[consumer]\nqueues = ['a=2=3']", "must give queue a a whole number"),
        ("[consumer]\nqueues = ['a=-1']", "must give queue a a whole number"),
        ("[consumer]\nqueues = ['a=²']", "must give queue a a whole number"),
        ("[consumer]\nqueues = ['=3']", "consumer.queues in {path}: is missing; give 1 to 100 characters"),
        ("[consumer]\nqueues = {a = 3}", "consumer.queues in {path}"),
        (
            "[consumer]\nqueues = ['a=600', 'b=401']",
            "the numbers of consumer.queues (1001) must not be above 1000 together",
        ),
        ("queue_type = 'stream'", "queue_type in {path}: must be 'quorum' or 'classic'; it is 'stream'"),
        ("schema = 'pg_x'", "schema in {path}"),
        ("schema = ''", "schema in {path}"),
        ("amqp_prefix = 'a b'", "amqp_prefix in {path}"),
        ("database_url = 5", "database_url in {path}: must be a valid string; it is of type int"),
        ("this is not toml", "is not TOML (at line 1, column"),
        (f"concurrency = {'1' * 5_000}", "is not TOML"),
        (b"log_level = '\xff'", "is not UTF-8 at byte 13"),
    ],
)
def test_a_bad_file_is_refused_with_place_and_remedy(toml: Any, text: str | bytes, expected: str) -> None:
    """Every refusal names the setting, the file, the limit or a suggestion."""
    path = toml(text)
    assert expected.replace("{path}", str(path)) in refusal(path)


def test_files_that_cant_be_read_are_refused(toml: Any, tmp_path: Path) -> None:
    """A missing file, a folder and a huge file each give one clear line."""
    assert "can't be read: No such file" in refusal(tmp_path / "missing.toml")
    assert "can't be read: Is a directory" in refusal(tmp_path)
    assert "more than 1048576 bytes" in refusal(toml("#" * 1_100_000))
    assert "can't be read" in refusal(None, {"OUTBOX_CONFIG": str(tmp_path / "missing.toml")})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("OUTBOX_RELAY_BATCH", "many", "OUTBOX_RELAY_BATCH in the environment: must be a valid integer; it is 'many'"),
        ("OUTBOX_RELAY_BATCH", "1.5", "must be a valid integer"),
        ("OUTBOX_RELAY_GRACE_S", "inf", "OUTBOX_RELAY_GRACE_S in the environment: must be"),
        ("OUTBOX_RELAY_BACTH", "1", "did you mean OUTBOX_RELAY_BATCH?"),
        ("OUTBOX_RELAY_GRACE", "1", "did you mean OUTBOX_RELAY_GRACE_S?"),
        ("OUTBOX_DATABSE_URL", "postgresql://u:canary-secret@h/db", "did you mean OUTBOX_DATABASE_URL?"),
        ("OUTBOX_DATABASE_URI", "x", "did you mean OUTBOX_DATABASE_URL?"),
        ("OUTBOX_CONFG", "x", "did you mean OUTBOX_CONFIG?"),
        ("OUTBOX_LOG_LEVEL", "loud\x1b[31m", "it is 'loud\\x1b[31m'"),
    ],
)
def test_a_bad_variable_is_refused(name: str, value: str, expected: str) -> None:
    """A wrong value names its variable; a slip in a name is refused with the right one."""
    message = refusal(env={name: value})
    assert expected in message
    assert "canary" not in message
    assert "\x1b" not in message


@pytest.mark.parametrize(
    "name",
    [
        "OUTBOX_RELAY_PORT",
        "OUTBOX_RELAY_SERVICE_HOST",
        "OUTBOX_RELAY_PORT_8080_TCP_ADDR",
        "OUTBOX_POSTGRES_PASSWORD",
        "OUTBOX_RABBITMQ_PASSWORD",
        "OUTBOX_BARRIER",
        "OUTBOX_BARRIER_DIR",
        "OUTBOX_TEST_ANYTHING",
        "OUTBOX_SOMETHING_ELSE",
        "UNRELATED_RELAY_BACTH",
    ],
)
def test_variables_of_others_are_ignored(name: str) -> None:
    """What isn't close to a setting of ours may belong to someone else, and Kubernetes makes such names."""
    assert load(env={name: "x"}) == Settings()


def test_overrides_are_checked_too() -> None:
    """An option's value is held to the same limits, and an unknown name is refused."""
    assert "relay.batch on the command line: must be less than or equal to 10000; it is 10001" in refusal(
        relay={"batch": 10_001}
    )
    assert "did you mean relay.batch?" in refusal(relay={"bach": 1})
    assert load(env={}, consumer={"concurrency": 3}).consumer.concurrency == 3


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"OUTBOX_RELAY_POLL_MIN_S": "1"}, "relay.poll_min_s (1) must not be above relay.poll_max_s (0.02)"),
        (
            {"OUTBOX_RELAY_BATCH": "5", "OUTBOX_RELAY_IDS_PER_MESSAGE": "6"},
            "relay.ids_per_message (6) must not be above relay.batch (5)",
        ),
        ({"OUTBOX_RELAY_REHINT_AFTER_S": "301"}, "must not be above relay.rehint_busy_after_s (300)"),
    ],
)
def test_settings_that_dont_fit_together_are_refused(env: dict[str, str], expected: str) -> None:
    """A rule between two settings names both, their values, and where they were set."""
    message = refusal(env=env)
    assert expected in message
    assert f"{next(iter(env))} in the environment" in message


@pytest.mark.parametrize("where", ["file", "environment"])
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("database_url", "postgresql://u:canary-secret@h:99999/db"),
        ("database_url", "canary-secret"),
        ("database_url", "host=h canary-secret"),
        ("amqp_url", "amqp://u:canary-secret@h?heartbeats=1"),
        ("amqp_url", "http://u:canary-secret@h"),
    ],
)
def test_a_bad_address_is_refused_without_itself(toml: Any, setting: str, value: str, where: str) -> None:
    """A malformed address is found when settings are loaded, named by its source, and shown in no part."""
    path, env = None, {}
    if where == "file":
        path = toml(f'{setting} = "{value}"')
    else:
        env = {f"OUTBOX_{setting.upper()}": value}
    message = refusal(path, env)
    assert "canary" not in message
    assert (f"{setting} in {path}" if where == "file" else f"OUTBOX_{setting.upper()} in the environment") in message


def test_an_unquoted_secret_in_the_file_isnt_repeated(toml: Any) -> None:
    """Where TOML breaks on a password without quotes, only the place is told."""
    assert "canary" not in refusal(toml("database_url = canary-secret"))
    assert "canary" not in refusal(toml("database_url = 'postgresql://u:canary-secret'@h'"))


def test_loading_registers_secrets() -> None:
    """After loading, passwords of both addresses and of libpq are masked, raw and encoded."""
    load(
        env={
            "OUTBOX_DATABASE_URL": "postgresql://u:first%40canary@h/db?sslpassword=second-canary",
            "OUTBOX_AMQP_URL": "amqp://u:third/canary@h/",
            "PGPASSWORD": "fourth-canary",
        }
    )
    shown = masking.mask("first@canary first%40canary second-canary third/canary third%2Fcanary fourth-canary")
    assert "canary" not in shown


def test_an_address_without_a_password_is_no_secret() -> None:
    """It may be read by whoever has to find the mistake in it; one that can't be parsed may not."""
    for address in ("postgresql://canary-host/app", "host=canary-host dbname=app"):
        load(env={"OUTBOX_DATABASE_URL": address})
        assert masking.mask(f"at {address}") == f"at {address}"
    hidden = "postgresql://u:canary-word@canary-host/app"
    load(env={"OUTBOX_DATABASE_URL": hidden})
    assert "canary" not in masking.mask(hidden)
    with pytest.raises(SettingsError):
        load(env={"OUTBOX_DATABASE_URL": "postgresql://canary-host:port-canary/app"})
    assert "canary" not in masking.mask("postgresql://canary-host:port-canary/app")


def test_libpq_variables_serve_as_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """With PGHOST set no URL is needed; with neither, the error says what to set."""
    for name in ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingsError, match="OUTBOX_DATABASE_URL is not set"):
        load(env={}).conninfo()
    monkeypatch.setenv("PGHOST", "h")
    assert "host" not in load(env={}).conninfo()


@pytest.mark.parametrize("name", ['weird "name" %s $outbox$ é', "public", "Ünïcode", "a.b", "x" * 63])
def test_any_legal_schema_name_is_taken(name: str) -> None:
    """Spaces, quotes, percent signs, dots and letters of any script are legal in an identifier."""
    assert load(env={"OUTBOX_SCHEMA": name}).schema_name == name


def test_a_small_batch_needs_no_other_setting() -> None:
    """The default number of ids in a message is a limit only, and stands in no small batch's way."""
    assert load(env={}, relay={"batch": 1}).relay.batch == 1


def test_retention_is_set_by_file_variable_and_kind(toml: Any) -> None:
    """Times have units; kinds come as tables or as JSON; what is wrong is named down to its kind."""
    path = toml("[retention]\nsucceeded = '30d'\n[retention.kinds.mail]\nsucceeded = '12h'\n")
    settings = load(env={"OUTBOX_CONFIG": str(path), "OUTBOX_RETENTION_CANCELLED": "2w"}).retention
    assert settings.succeeded == timedelta(days=30)
    assert settings.cancelled == timedelta(days=14)
    assert settings.failed is None
    assert settings.kinds["mail"].succeeded == timedelta(hours=12)
    by_json = load(env={"OUTBOX_RETENTION_KINDS": '{"mail": {"failed": "never"}}'}).retention
    assert by_json.kinds["mail"].model_fields_set == {"failed"}
    for env, problem in {
        "30": r"a time with its unit.*'30'",
        "5m": "from 1h to 36500d",
        "1000000d": "from 1h to 36500d",
    }.items():
        with pytest.raises(SettingsError, match=rf"OUTBOX_RETENTION_FAILED in the environment: .*{problem}"):
            load(env={"OUTBOX_RETENTION_FAILED": env})
    with pytest.raises(SettingsError, match=r"retention\.kinds in .* at mail\.succeeded: must be a time with its unit"):
        load(env={"OUTBOX_CONFIG": str(toml("[retention.kinds.mail]\nsucceeded = 7\n"))})
    for text in ("{", '{"a b": {}}', '{"mail": {"nothing": "1d"}}'):
        with pytest.raises(SettingsError, match="OUTBOX_RETENTION_KINDS"):
            load(env={"OUTBOX_RETENTION_KINDS": text})


@pytest.mark.parametrize("table", ["retention", "retention.kinds.mail"])
def test_a_payload_kept_for_longer_than_its_row_is_refused(toml: Any, table: str) -> None:
    """It could never act; as long is allowed."""
    path = toml(f"[{table}]\nsucceeded = '7d'\nsucceeded_payload = '30d'\n")
    with pytest.raises(SettingsError, match="succeeded_payload must not be longer than succeeded"):
        load(env={"OUTBOX_CONFIG": str(path)})
    load(env={"OUTBOX_CONFIG": str(toml(f"[{table}]\nsucceeded = '7d'\nsucceeded_payload = '7d'\n"))})


def test_a_kinds_payload_is_held_to_the_row_that_it_takes_over(toml: Any) -> None:
    """A kind that says nothing of its rows has those of all kinds; one that shortens its rows alone means both."""
    both = "[retention]\nfailed = '7d'\nfailed_payload = '5d'\n[retention.kinds.mail]\n"
    with pytest.raises(SettingsError, match=r"kinds\.mail\.failed_payload must not be longer than failed, .* 7 days"):
        load(env={"OUTBOX_CONFIG": str(toml(f"{both}failed_payload = '30d'\n"))})
    for sound in ("failed_payload = '7d'", "failed_payload = '30d'\nfailed = '30d'", "failed = '1d'"):
        load(env={"OUTBOX_CONFIG": str(toml(f"{both}{sound}\n"))})
    load(env={"OUTBOX_CONFIG": str(toml(f"{both}failed = 'never'\nfailed_payload = '30d'\n"))})
