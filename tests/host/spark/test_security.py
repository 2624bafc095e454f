"""A Kafka with logins: ways to log in, refused logins, and the rights that an application needs."""

from __future__ import annotations

import base64
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock import Consumed, Produced, Serdes, StreamsBuilder, StreamsConfig
from penstock.client.api import NewTopic
from penstock.client.confluent.admin import ConfluentAdmin
from penstock.client.confluent.consumer import ConfluentFetcher
from penstock.client.confluent.producer import ConfluentProducer
from penstock.client.confluent.transactions import transactions_refused
from penstock.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerNotFoundError,
    ClusterAuthorizationError,
    GroupAuthorizationError,
    KafkaError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
)
from penstock.host.spark.protocol.failures import QueryFailedError, decode_failure
from penstock.plan.topology import Topology
from penstock.record import TopicPartition
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import wait_for
from tests.support.kafka import require_kafka
from tests.support.secured_kafka import PASSWORD, TOKEN_SECONDS, Acl, SecuredKafka

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("secured-kafka")]

TEXT = Serdes.string()
SOURCE, TARGET = "orders", "bills"


def rights(application_id: str) -> dict[str, Acl]:
    """Return the rights that an application needs, as docs/security.md lists them."""
    commits = f"{application_id}-penstock-commits"
    return {
        "read": Acl("READ", "TOPIC", SOURCE),
        "write": Acl("WRITE", "TOPIC", TARGET),
        "create-commits": Acl("CREATE", "TOPIC", commits),
        "read-commits": Acl("READ", "TOPIC", commits),
        "commits-group": Acl("READ", "GROUP", commits),
        "group": Acl("READ", "GROUP", application_id),
        "transactional-ids": Acl("WRITE", "TRANSACTIONAL_ID", f"{application_id}-", prefixed=True),
    }


RIGHTS = tuple(rights("any"))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    require_kafka()
    users = ["app", "nobody", "all", *(f"without-{right}" for right in RIGHTS)]
    with SecuredKafka(tmp_path_factory.mktemp("certificates"), users) as running:
        config = StreamsConfig({"bootstrap.servers": running.bootstrap_servers})
        admin, producer = ConfluentAdmin(config), ConfluentProducer(config)
        admin.create_topics([NewTopic(SOURCE, 1), NewTopic(TARGET, 1)])
        producer.send(SOURCE, b"key", b"value")
        producer.close()
        running.allow("app", rights("app").values())
        running.add_scram_user("app")
        yield running
        admin.close()


def config_of(keys: Mapping[str, Any], **values: Any) -> StreamsConfig:
    return StreamsConfig({"application.id": "app", **keys, **values}, environment={})


def read(config: StreamsConfig, timeout_ms: int = 20_000) -> int:
    """Return how many records the first fetch of the source gives."""
    fetcher = ConfluentFetcher(config, timeout_ms)
    try:
        return sum(map(len, fetcher.fetch(TopicPartition(SOURCE, 0), 0, 1, read_committed=True)))
    finally:
        fetcher.close()


WAYS: dict[str, Callable[[SecuredKafka], dict[str, Any]]] = {
    "mutual TLS": lambda kafka: kafka.mutual("app"),
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
        "ssl.endpoint.identification.algorithm": "https",
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_all_clients_log_in(kafka: SecuredKafka, way: str) -> None:
    config = config_of(WAYS[way](kafka))
    admin = ConfluentAdmin(config)
    assert admin.topics()[SOURCE] == 1
    admin.close()
    assert read(config) == 1
    assert transactions_refused(config, "app-probe") is None


def test_a_client_may_know_the_broker_and_be_nobody(kafka: SecuredKafka) -> None:
    admin = ConfluentAdmin(config_of(kafka.tls()))
    assert SOURCE in admin.topics()
    admin.close()


def _token(user: str, until: float) -> str:
    parts = ({"alg": "none"}, {"sub": user, "iat": until - TOKEN_SECONDS, "exp": until})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return ".".join((*encoded, ""))


def test_tokens_that_expire_are_asked_for_again(kafka: SecuredKafka) -> None:
    asked: list[float] = []

    def token(_: str) -> tuple[str, float]:
        until = time.time() + TOKEN_SECONDS
        asked.append(until)
        return _token("app", until), until

    oauth = {key: value for key, value in kafka.oauth("app").items() if "oauthbearer" not in key}
    config = config_of(oauth, oauth_cb=token)
    admin, fetcher = ConfluentAdmin(config), ConfluentFetcher(config)

    def go_on_to_the_end() -> bool:
        assert SOURCE in admin.topics()
        assert sum(map(len, fetcher.fetch(TopicPartition(SOURCE, 0), 0, 1, read_committed=True))) == 1
        return time.time() >= asked[0] + TOKEN_SECONDS  # the broker ends connections of a token that is over

    wait_for(go_on_to_the_end)
    assert len(asked) > 2
    fetcher.close()
    admin.close()


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
        "certificate verify failed.*ssl.ca.location",
    ),
    "no certificate": (
        lambda kafka: {**kafka.tls(), "bootstrap.servers": kafka.mutual("app")["bootstrap.servers"]},
        "ssl.certificate.location",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_login_that_is_refused_is_no_broker_that_is_away(kafka: SecuredKafka, case: str) -> None:
    keys, said = REFUSED[case]
    config = config_of(keys(kafka))
    admin = ConfluentAdmin(config)
    with pytest.raises(AuthenticationError, match=said) as refused:
        admin.topics()
    assert "wrong-one" not in str(refused.value)
    with pytest.raises(AuthenticationError, match=said):
        transactions_refused(config, "app-probe")
    with pytest.raises(AuthenticationError, match=said):
        read(config)
    admin.close()


def test_a_listener_of_another_protocol_is_a_broker_that_does_not_answer(kafka: SecuredKafka) -> None:
    admin = ConfluentAdmin(config_of({"bootstrap.servers": kafka.tls()["bootstrap.servers"]}), timeout_ms=1500)
    with pytest.raises(BrokerNotFoundError, match=r"security\.protocol=PLAINTEXT"):
        admin.topics()
    admin.close()


def test_a_right_that_is_missing_is_named_with_its_resource(kafka: SecuredKafka) -> None:
    config = config_of(kafka.sasl("PLAIN", "nobody"))
    admin, partition = ConfluentAdmin(config), TopicPartition(SOURCE, 0)

    def write() -> None:
        producer = ConfluentProducer(config)
        producer.send(TARGET, b"key", b"value")
        producer.close()

    calls: list[tuple[Callable[[], object], type[KafkaError], str]] = [
        (lambda: admin.end_offsets([partition]), TopicAuthorizationError, f"DESCRIBE on the topic {SOURCE}"),
        (lambda: admin.topic_ids([SOURCE]), TopicAuthorizationError, f"DESCRIBE on the topic {SOURCE}"),
        (lambda: admin.describe_topic(SOURCE), TopicAuthorizationError, f"DESCRIBE on the topic {SOURCE}"),
        (lambda: admin.create_topics([NewTopic("new")]), TopicAuthorizationError, "CREATE on the topic new"),
        (lambda: admin.create_partitions(SOURCE, 9), TopicAuthorizationError, f"ALTER on the topic {SOURCE}"),
        (lambda: admin.delete_topics([SOURCE]), TopicAuthorizationError, f"DELETE on the topic {SOURCE}"),
        (lambda: admin.committed_offsets("g", [partition]), GroupAuthorizationError, "DESCRIBE on the group g"),
        (lambda: admin.delete_groups(["g"]), GroupAuthorizationError, "DELETE on the group g"),
        (lambda: read(config), TopicAuthorizationError, f"READ on the topic {SOURCE}"),
        (
            lambda: transactions_refused(config, "t"),
            TransactionalIdAuthorizationError,
            "WRITE on the transactional id t",
        ),
    ]
    for call, kind, said in calls:
        with pytest.raises(kind, match=rf"do not allow {said} to the user of sasl\.username.*kafka-acls --add"):
            call()
    kafka.allow("nobody", [Acl("DESCRIBE", "TOPIC", SOURCE), Acl("DESCRIBE", "TOPIC", TARGET)])
    eventually_raises(lambda: read(config, 1500), TopicAuthorizationError, f"READ on the topic {SOURCE}")
    eventually_raises(write, ClusterAuthorizationError, f"WRITE on the topic {TARGET}")
    admin.close()


def eventually_raises(call: Callable[[], object], kind: type[KafkaError], said: str) -> None:
    """Call until the error says `said`: a granted right takes a moment to arrive everywhere."""
    error: KafkaError | None = None
    for _ in range(20):
        with pytest.raises(KafkaError) as caught:
            call()
        error = caught.value
        if isinstance(error, kind) and said in str(error):
            return
    pytest.fail(f"no {kind.__name__} for {said}, but: {error}")


def copies() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(SOURCE, Consumed.with_(key_serde=TEXT, value_serde=TEXT))
    stream.to(TARGET, Produced.with_(key_serde=TEXT, value_serde=TEXT))
    return builder.build()


def run_twice(kafka: SecuredKafka, user: str, directory: Path) -> None:
    """Run an application as `user` to the end of its input, start it again, and run it on another record; raises the
    error that ends it."""
    config = config_of(
        kafka.sasl("PLAIN", user), **{"application.id": f"app-{user}", "state.dir": str(directory / "state")}
    )
    admin = ConfluentAdmin(config)
    producer = ConfluentProducer(StreamsConfig({"bootstrap.servers": kafka.bootstrap_servers}))
    query: InlineQuery | None = None
    try:
        for _ in range(2):
            producer.send(SOURCE, b"key", b"value")
            producer.flush()
            query = query or InlineQuery(copies(), config, admin, parallelism=1)
            query.run_to_end()
            query.restart()
    except QueryFailedError as error:
        raise decode_failure(error.failure)[0] from None
    finally:
        if query is not None:
            query.close()
        producer.close()
        admin.close()


def test_the_rights_of_the_documentation_are_enough(kafka: SecuredKafka, tmp_path: Path) -> None:
    kafka.allow("all", rights("app-all").values())
    run_twice(kafka, "all", tmp_path)


def test_the_documentation_lists_these_rights_and_no_others() -> None:
    text = (Path(__file__).parents[3] / "docs" / "security.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([A-Z]+)` \| ([a-z ]+) `([^`]+)` \|", text, re.M))
    names = {SOURCE: "<source topic>", TARGET: "<sink topic>"}
    assert listed == {
        (acl.operation, acl.kind.lower().replace("_", " "), names.get(acl.resource, acl.resource) + "*" * acl.prefixed)
        for acl in rights("<application.id>").values()
    }


NAMED: dict[str, tuple[type[AuthorizationError], str]] = {
    "read": (TopicAuthorizationError, f"the topic {SOURCE}"),
    "write": (TopicAuthorizationError, f"the topic {TARGET}"),
    "create-commits": (TopicAuthorizationError, "CREATE on the topic app-{user}-penstock-commits"),
    "read-commits": (TopicAuthorizationError, "the topic app-{user}-penstock-commits"),
    "commits-group": (GroupAuthorizationError, "the group app-{user}-penstock-commits"),
    "transactional-ids": (TransactionalIdAuthorizationError, "the transactional id app-{user}-penstock-probe"),
}


@pytest.mark.parametrize("right", NAMED)
def test_each_of_these_rights_is_needed_and_named(kafka: SecuredKafka, tmp_path: Path, right: str) -> None:
    user = f"without-{right}"
    kafka.allow(user, [acl for name, acl in rights(f"app-{user}").items() if name != right])
    kind, said = NAMED[right]
    with pytest.raises(kind, match=said.format(user=user)):
        run_twice(kafka, user, tmp_path)


def test_without_the_group_only_tools_are_not_shown_the_positions(
    kafka: SecuredKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    user = "without-group"
    kafka.allow(user, [acl for name, acl in rights(f"app-{user}").items() if name != "group"])
    with caplog.at_level(logging.WARNING, "penstock.host.spark.planner"):
        run_twice(kafka, user, tmp_path)
    assert "READ on the group app-without-group to" in caplog.text


@pytest.mark.spark
def test_an_application_runs_on_spark_with_these_rights_and_a_password(kafka: SecuredKafka, tmp_path: Path) -> None:
    runner = SparkRunner(kafka.bootstrap_servers, tmp_path)
    try:
        config = runner.config("app", {**kafka.sasl("SCRAM-SHA-512", "app"), "penstock.spark.partitions": 1})
        before = len(runner.read(TARGET))
        runner.run(copies(), config)
        assert len(runner.read(TARGET)) > before
    finally:
        runner.close()
