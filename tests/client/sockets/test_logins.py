"""Penstock's own connections to a Kafka with logins: ways to log in, refused logins, sessions and rights."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from penstock.client.sockets.cluster import METADATA, Cluster
from penstock.client.sockets.transactions import TransactionAdmin
from penstock.config import StreamsConfig
from penstock.errors import (
    AuthenticationError,
    BrokerNotFoundError,
    ClusterAuthorizationError,
    TransactionalIdAuthorizationError,
)
from penstock.record import TopicPartition
from tests.support.kafka import require_kafka
from tests.support.secured_kafka import PASSWORD, TOKEN_SECONDS, Acl, SecuredKafka
from tests.support.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("secured-kafka")]

DOING = "asking"
TOPIC = "visible"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    require_kafka()
    with SecuredKafka(tmp_path_factory.mktemp("certificates"), ["app"]) as running:
        running.add_scram_user("app")
        for created in running.admin.create_topics([NewTopic(TOPIC, 1)]).values():
            created.result(60)
        running.allow("app", [Acl("DESCRIBE", "TOPIC", TOPIC)])
        yield running


def cluster_of(keys: dict[str, Any], timeout_ms: int = 60_000) -> Cluster:
    return Cluster(StreamsConfig({"application.id": "app", **keys}, environment={}), timeout_ms)


def mutual_by_text(kafka: SecuredKafka) -> dict[str, Any]:
    keys = kafka.mutual("app")
    both = Path(keys["ssl.certificate.location"]).read_text(encoding="utf-8")
    key, begin, certificate = both.partition("-----BEGIN CERTIFICATE-----")
    authority = kafka.certificates.authority.read_text(encoding="utf-8")
    texts = {"ssl.key.pem": key, "ssl.certificate.pem": begin + certificate, "ssl.ca.pem": authority}
    return {key: value for key, value in keys.items() if not key.endswith("location")} | texts


WAYS: dict[str, Callable[[SecuredKafka], dict[str, Any]]] = {
    "TLS": lambda kafka: kafka.tls(),
    "mutual TLS": lambda kafka: kafka.mutual("app"),
    "mutual TLS by texts": mutual_by_text,
    "PLAIN": lambda kafka: kafka.sasl("PLAIN", "app"),
    "SCRAM-SHA-256": lambda kafka: kafka.sasl("SCRAM-SHA-256", "app"),
    "SCRAM-SHA-512": lambda kafka: kafka.sasl("SCRAM-SHA-512", "app"),
    "OAUTHBEARER": lambda kafka: kafka.oauth("app"),
    "the keys of a Java client": lambda kafka: {
        "bootstrap.servers": kafka.sasl("PLAIN", "app")["bootstrap.servers"],
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'PlainLoginModule required username="app" password="{PASSWORD}";',
        "ssl.truststore.location": str(kafka.certificates.authority),
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_a_connection_logs_in_as_the_clients_of_librdkafka_do(kafka: SecuredKafka, way: str) -> None:
    with cluster_of(WAYS[way](kafka)) as cluster:
        assert len(cluster.nodes(DOING)) == 1


def test_a_session_that_expires_is_renewed_on_the_same_connection(kafka: SecuredKafka) -> None:
    with cluster_of(kafka.oauth("app")) as cluster:
        [node] = cluster.nodes(DOING).values()
        with cluster.connect(node, DOING) as connection:
            end = time.monotonic() + 2 * TOKEN_SECONDS  # the broker ends connections of a token that is over

            def goes_on_to_the_end() -> bool:
                assert connection.call(METADATA, {"topics": []}, DOING)["brokers"]
                return time.monotonic() >= end

            assert until(goes_on_to_the_end)


REFUSED: dict[str, tuple[Callable[[SecuredKafka], dict[str, Any]], str]] = {
    "a wrong password": (
        lambda kafka: kafka.sasl("PLAIN", "app", "wrong-one"),
        "Invalid username or password.*sasl.username and sasl.password",
    ),
    "a wrong password of SCRAM": (
        lambda kafka: kafka.sasl("SCRAM-SHA-256", "app", "wrong-one"),
        "invalid credentials.*sasl.username and sasl.password",
    ),
    "a broker that is not known": (
        lambda kafka: {key: value for key, value in kafka.tls().items() if key != "ssl.ca.location"},
        "SSL handshake failed.*ssl.ca.location",
    ),
    "no certificate": (
        lambda kafka: {**kafka.tls(), "bootstrap.servers": kafka.mutual("app")["bootstrap.servers"]},
        "ssl.certificate.location",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_login_that_is_refused_is_no_broker_that_is_away(kafka: SecuredKafka, case: str) -> None:
    keys, said = REFUSED[case]
    with cluster_of(keys(kafka)) as cluster, pytest.raises(AuthenticationError, match=said) as refused:
        cluster.nodes(DOING)
    assert "wrong-one" not in str(refused.value)


def test_a_listener_of_another_protocol_is_a_broker_that_does_not_answer(kafka: SecuredKafka) -> None:
    keys = {"bootstrap.servers": kafka.tls()["bootstrap.servers"]}
    with cluster_of(keys, 1500) as cluster, pytest.raises(BrokerNotFoundError, match=r"security\.protocol=PLAINTEXT"):
        cluster.nodes(DOING)


def test_a_right_that_is_missing_is_named_with_its_resource(kafka: SecuredKafka) -> None:
    with cluster_of(kafka.sasl("PLAIN", "app")) as cluster:
        admin = TransactionAdmin(cluster)
        with pytest.raises(TransactionalIdAuthorizationError, match="DESCRIBE on the transactional id mine"):
            admin.describe("mine")
        with pytest.raises(ClusterAuthorizationError, match="CLUSTER_ACTION on the cluster"):
            admin.abort(TopicPartition(TOPIC, 0), 1, 0, 0)
