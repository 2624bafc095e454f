"""A table of a database in a topic of its changes: each row under its primary key, a tombstone where a row was deleted.

Orders get the address of their customer without a question to the database, and customers are counted by city.
"""

from typing import Any

from penstock import Consumed, Grouped, KafkaStreams, KeyValue, Materialized, Produced, Serdes, StreamsBuilder

config = {"application.id": "database-changes", "default.key.serde": Serdes.string()}
STRING, JSON = Serdes.string(), Serdes.json()


def shipped(order: dict[str, Any], customer: dict[str, Any] | None) -> dict[str, Any]:
    return {**order, "ship_to": customer and customer["city"]}


builder = StreamsBuilder()
customers = builder.table("customers", Consumed.with_(STRING, JSON), Materialized.as_("customers"))

orders = builder.stream("orders", Consumed.with_(STRING, JSON))
orders.left_join(customers, shipped).to("shipments", Produced.with_(STRING, JSON))

by_city = customers.group_by(lambda number, customer: KeyValue(customer["city"], number), Grouped.with_(STRING, STRING))
by_city.count().to_stream().to("customers-by-city", Produced.with_(STRING, Serdes.long()))
topology = builder.build()

if __name__ == "__main__":
    with KafkaStreams(topology, config) as streams:
        streams.await_termination()
