"""Servers that the environment names: their addresses are read, and the broker is asked, before anything starts."""

import os
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote, urlencode

import pika
from pika.exceptions import AMQPError

from outbox.amqp.failures import describe, is_refusal
from outbox.amqp.parameters import connection_parameters
from outbox.servers import NoBroker, Postgres
from outbox.servers.start import BROKER_VARIABLE, DATABASE_VARIABLE
from outbox.settings import load
from outbox.settings.urls import AmqpAddress, database_conninfo


def check_found(environ: Mapping[str, str] = os.environ) -> None:
    """See that the servers named in the environment, if any, can be used, and have their passwords masked.

    Raises:
        SettingsError: an address can't be read.
        NoBroker: the broker is away or refuses us. Quietly doing without it would hide the mistake.
    """
    named = {name: environ[name] for name in (DATABASE_VARIABLE, BROKER_VARIABLE) if environ.get(name)}
    broker = load(env=named).amqp()
    if broker is not None:
        _probe(broker)


def usable(server: Postgres) -> Postgres:
    """Return the server with an address that every library here reads: people may write it in many ways."""
    return server if server.private else replace(server, url=_plain_url(server.url))


def _probe(broker: AmqpAddress) -> None:
    try:
        pika.BlockingConnection(connection_parameters(broker, name="outbox-demo")).close()
    except (AMQPError, OSError, ValueError) as error:
        verb = "refuses us" if is_refusal(error) else "can't be reached"
        raise NoBroker(
            f"the broker in {BROKER_VARIABLE} ({broker.host}:{broker.port}, vhost {broker.vhost}) {verb}: "
            f"{describe(error)}; correct the variable, or unset it to have one started"
        ) from error


def _plain_url(text: str) -> str:
    keywords = database_conninfo(text)
    user, password = keywords.pop("user", ""), keywords.pop("password", "")
    name = keywords.pop("dbname", "")
    keywords.pop("application_name", None)  # each process has its own
    account = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    return f"postgresql://{account}@/{quote(name, safe='')}?{urlencode(keywords, quote_via=quote)}"
