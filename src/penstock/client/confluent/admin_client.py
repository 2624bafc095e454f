"""The librdkafka client of a `ConfluentAdmin`: replaced after silence, released when idle, and opened again."""

from __future__ import annotations

from functools import partial
from weakref import ReferenceType, ref

from confluent_kafka.admin import AdminClient

from penstock.background import in_background
from penstock.client.confluent.connection import ClientConnection, nothing_to_serve
from penstock.client.kept_clients import KeptClients
from penstock.errors import KafkaError

_REST_SECONDS = 1.0
"""Lifetime (s) of a replaced client. It ensures that the last reference to the client is in the thread that ends it."""


class LeaderAwareClient(AdminClient):
    """An admin client that remembers whether it has looked up the leaders of partitions."""

    knows_leaders = False


class RenewableClient:
    """The client of one admin.

    Args:
        connection: the connection of the admin.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._clients = KeptClients(partial(_opened, connection), most=1)
        self._is_closed = False

    def open(self, doing: str) -> LeaderAwareClient:
        """Return the client, opened if needed. Raises KafkaError naming `doing` after `close`."""
        if self._is_closed:
            raise KafkaError(f"The client is closed ({doing}).")
        return self._clients()

    def renew(self) -> None:
        """Replace the client; the old one ends in the background, which may take long."""
        self._connection.take_reports()
        client = self._clients.drop()
        if client is not None:
            in_background("penstock-admin-end", partial(client.poll, _REST_SECONDS))  # and drops its reference
        if not self._is_closed:
            self._clients()

    def close(self) -> None:
        """Release the client; idempotent."""
        self._is_closed = True
        self._connection.serve = nothing_to_serve
        self._clients.release_all()  # librdkafka closes an admin client when its last reference is dropped


def _opened(connection: ClientConnection) -> LeaderAwareClient:
    client = connection.make(LeaderAwareClient)
    connection.serve = partial(_serve, ref(client))  # the connection must not keep a released client
    return client


def _serve(client: ReferenceType[LeaderAwareClient], seconds: float) -> None:
    served = client()
    if served is not None:
        served.poll(seconds)
