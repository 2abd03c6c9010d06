"""From the broker's address to pika's connection parameters. Every wait in them is bounded."""

from __future__ import annotations

import ssl

import pika

from outbox.settings.urls import AmqpAddress

__all__ = ["connection_parameters"]

HEARTBEAT_S = 20
CONNECT_TIMEOUT_S = 10.0


def connection_parameters(address: AmqpAddress, *, name: str) -> pika.ConnectionParameters:
    """Return the parameters of one connection; `name` is what the broker's own tools show.

    Raises `OSError` (`ssl.SSLError` is one) if a certificate file can't be read.
    """
    timeout_s = address.connection_timeout_s or CONNECT_TIMEOUT_S
    return pika.ConnectionParameters(
        host=address.host,
        port=address.port,
        virtual_host=address.vhost,
        credentials=pika.PlainCredentials(address.username, address.password),
        ssl_options=_tls(address) if address.tls else None,
        heartbeat=HEARTBEAT_S if address.heartbeat_s is None else address.heartbeat_s,
        socket_timeout=timeout_s,
        stack_timeout=timeout_s * 1.5,
        # The publisher bounds a blocked connection by itself, message by message.
        blocked_connection_timeout=None,
        connection_attempts=1,
        client_properties={"connection_name": name},
    )


def _tls(address: AmqpAddress) -> pika.SSLOptions:
    context = ssl.create_default_context(cafile=address.ca_file)
    if not address.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if address.cert_file:
        context.load_cert_chain(address.cert_file, address.key_file)
    return pika.SSLOptions(context, address.server_name or address.host)
