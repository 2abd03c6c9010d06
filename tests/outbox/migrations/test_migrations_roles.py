"""The least that each role needs, as the documentation grants it, is enough for its statements."""

import re
import uuid
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine, text

from outbox import enqueue, find_job
from outbox.database.statements import Statements
from outbox.migrations import upgrade_database
from outbox.settings.identifiers import schema_identifier
from outbox_schemas import Payload

DOCUMENT = Path(__file__).parents[3] / "docs" / "schema.md"
SCHEMA = 'weird "name" %s $function$ :x é'

# Which process runs which statements.
RELEASING = (
    "visit_tenants release_shares due_queues due_again release unrelease overdue_hints recover_hints stray_hints"
)
LIVING = "announce depart"
SETS = "moved_joins see_members close_joins"
PURGING = "purge erase_payloads"
PAUSING = "list_pauses take_back owing_queues set_aside put_back forget_pauses"
FIGURES = "hold_count count_queues keep_figures"
GAUGES = "hold_gauges read_gauges"
STANDING = "standing_jobs locked_table owing_queues list_jobs surroundings row_holders limits_around key_around"
LIMITED = "free_keys hold_limits count_limited pick_low release_picked spend_tokens set_rest_aside"
LIMITING = f"{LIMITED} governed_queues take_back_limited take_back_beyond forget_tokens set_limits_back"
LIMITS = (
    "hold_queue open_queue set_queue_limits carry_tokens read_tenant set_tenant_limits govern_queue list_limits "
    "governed_queues take_back_limited take_back_beyond forget_tokens limits_around key_around list_runways "
    "known_queues known_tenants known_kinds"
)
LEASES = "due_leases put_off_leases recover_leases expire_deadlines"
KEEPING = f"{RELEASING} {PAUSING} {LIMITING} {LEASES} read_clock backend_pid {LIVING} {SETS} {FIGURES}"
CLAIMING = "claim own_claims refuse offer_again"
ENDING = (
    "complete complete_one hold_owned same_transaction retry fail attempt_outcomes lease_ends held_rows spent_budgets "
    "record_refusals"
)
ACTING = "effect_begin effect_again effect_confirm effect_leave effect_late leave_effects"
WORKING = f"{CLAIMING} {ACTING} heartbeat fence current_transaction {ENDING} load_checkpoint save_checkpoint park"
DOCTORING = " ".join(
    path.name.removesuffix(".sql")
    for path in files("outbox").joinpath("sql").iterdir()
    if path.name.startswith(("doctor_", "mend_", "page_of_"))
)
ROTATING = "begin_rotation find_rotation hold_rotation note_rotation"
SEALS = f"walk_seals count_seals awaited_keys read_seals reseal open_job {ROTATING}"
SEARCHING = "find_jobs find_unfinished find_failed find_correlated find_few find_about key_line key_scopes"
TURNS = (
    "next_redrive settle_redrive redrive_lanes promote_canaries pick_redrive pick_free redrive pace_redrive "
    "advance_redrive postpone_redrive purge_redrives"
)
DEAD = (
    "list_dead_letters count_dead_letters get_dead_letter dead_letter_backlog discard "
    "choose_redrive known_jobs first_of_redrive redrive advance_redrive redrive_payloads patch_redrive steer_redrive "
    "list_redrives list_redrive_items"
)
MAKING = "advance_schedule enqueue_one enqueue_keyed enqueue_subjects supersede"
PLANNING = f"next_schedule break_schedule {MAKING}"
SCHEDULING = (
    f"list_schedules hold_schedule add_schedule change_schedule steer_schedule remove_schedule write_audit {MAKING}"
)
USED_BY = {
    "writer": "enqueue enqueue_one enqueue_new enqueue_keyed enqueue_new_keyed take_place "
    "find_committed get_job surroundings row_holders limits_around key_around once find_once "
    "keep_once look_at_members open_join",
    "coalescer": "enqueue_subjects supersede replace",
    "relay": f"{KEEPING} {GAUGES} wake_place fill_dead_letters dead_letter_backlog hold_walk keep_walk purge_inbox "
    f"errands {PURGING} {TURNS} {PLANNING} {STANDING} trace_contexts",
    "consumer": f"{KEEPING} relay_lives {WORKING} unsettled_effects spent_budgets record_refusals {STANDING}",
    "operator": "list_open_effects job_effects get_effect effect_notes effect_resolve get_job list_jobs "
    "list_attempts list_refusals job_acts job_checkpoints running_jobs fresh_jobs open_matters count_queues "
    "keep_to_indexes job_tree queue_overview held_up read_clock surroundings row_holders "
    f"{DOCTORING} {SEARCHING} {SEALS} {DEAD} {SCHEDULING} list_processes hold_job hold_jobs cancellable read_traces "
    "list_figures bound_queue unbound_queue list_bounds "
    f"cancel write_audit pause resume list_pauses take_back wake_relay {LIMITS} get_payload "
    f"preview_purge {PURGING}",
}


class Ping(Payload):
    """A job of these tests."""

    kind = "ping"
    version = 1
    queue = "default"
    name: str

    def logical_key(self) -> str:
        """Return the name."""
        return self.name


class About(Ping):
    """One that is about something."""

    page: int = 1

    def subject_key(self) -> str:
        """Return the same for all."""
        return "it"


def documented_grants(schema: str, prefix: str) -> str:
    """Return the documentation's grants, for this schema and for roles that begin with `prefix`."""
    block = re.search(r"\n## Roles\n.*?```sql\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    quoted = schema_identifier(schema)
    grants = re.sub(r"outbox_(writer|coalescer|relay|consumer|operator)\b", rf"{prefix}_\1", block[1])
    grants = re.sub(r"\boutbox\.(?=[a-z])", lambda _: f"{quoted}.", grants)
    return grants.replace("SCHEMA outbox", f"SCHEMA {quoted}")


@pytest.fixture
def roles(engine: Engine) -> Iterator[str]:
    """Give the prefix of four roles with the documented rights on an installation under an unusual name."""
    prefix = f"migration_{uuid.uuid4().hex[:12]}"
    upgrade_database(engine, SCHEMA)
    with engine.begin() as connection:
        for role in USED_BY:
            connection.execute(text(f"CREATE ROLE {prefix}_{role}"))
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql(documented_grants(SCHEMA, prefix), execution_options={"no_parameters": True})
        yield prefix
    finally:
        with engine.begin() as connection:
            for role in USED_BY:
                connection.execute(text(f"DROP OWNED BY {prefix}_{role}"))
                connection.execute(text(f"DROP ROLE {prefix}_{role}"))


@pytest.mark.parametrize("role", USED_BY)
def test_each_role_may_run_its_statements(roles: str, role: str, empty_database: str) -> None:
    """PostgreSQL lets the role plan and start every statement of its process."""
    with psycopg.connect(empty_database) as connection:
        connection.execute(f"SET ROLE {roles}_{role}".encode())
        for name in USED_BY[role].split():
            statement = Statements(SCHEMA).for_psycopg(name)
            nothing = dict.fromkeys(re.findall(r"%\((\w+)\)s", statement))
            connection.execute(b"EXPLAIN " + statement.encode(), nothing)


def test_a_writer_may_enqueue_and_nothing_more(roles: str, engine: Engine) -> None:
    """The writer's role submits and reads a job, under any schema name, and can't change or delete one."""
    with engine.begin() as connection:
        connection.execute(text(f"SET LOCAL ROLE {roles}_writer"))
        assert enqueue(connection, Ping(name="one"), schema=SCHEMA).created
        assert not enqueue(connection, Ping(name="one"), schema=SCHEMA).created
        assert find_job(connection, kind="ping", logical_key="one", schema=SCHEMA) is not None
    for table in ("jobs", "outbox"):
        quoted = f"{schema_identifier(SCHEMA)}.{table}"
        for change in (f"DELETE FROM {quoted}", f"TRUNCATE {quoted}", f"DROP TABLE {quoted}"):
            with engine.connect() as connection:
                connection.execute(text(f"SET LOCAL ROLE {roles}_writer"))
                with pytest.raises(Exception, match=r"permission denied|must be owner"):
                    connection.exec_driver_sql(change, execution_options={"no_parameters": True})


def test_one_who_coalesces_may_supersede_and_replace(roles: str, engine: Engine) -> None:
    """Its role ends and changes what waits, and needs no more than that besides a writer's rights."""
    with engine.begin() as connection:
        connection.execute(text(f"SET LOCAL ROLE {roles}_coalescer"))
        old = enqueue(connection, About(name="old"), schema=SCHEMA)
        assert enqueue(connection, About(name="new"), supersedes="latest", schema=SCHEMA).superseded == (old.id,)
        assert enqueue(connection, About(name="new", page=2), replace="latest", schema=SCHEMA).replaced


def test_every_statement_belongs_to_somebody() -> None:
    """A statement that no role is listed for would be one whose rights the documentation doesn't give."""
    known = {name for names in USED_BY.values() for name in names.split()}
    tableless = {"speak", "limit_statements", "ask_for_wakes", "leave_off_wakes", "hold_source"}
    present = {path.name.removesuffix(".sql") for path in files("outbox").joinpath("sql").iterdir()}
    assert present - tableless == known, "name the file here, and grant what it needs in docs/schema.md"
