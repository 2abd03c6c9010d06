"""The relay: moves due hints from PostgreSQL to RabbitMQ, and keeps time. Any number may run."""

from outbox_relay.process import run

__all__ = ["run"]
