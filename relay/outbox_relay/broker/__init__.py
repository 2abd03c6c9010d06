"""All that knows pika: one connection to the broker, owned by one thread, behind a thread-safe publisher."""

from outbox_relay.broker.publisher import BrokerState, Publisher

__all__ = ["BrokerState", "Publisher"]
