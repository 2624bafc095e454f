"""The protocols of the clients, and the clients that implement them."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from penstock.client import api
from penstock.client.confluent import (
    ConfluentAdmin,
    ConfluentBatchProducer,
    ConfluentConsumer,
    ConfluentFetcher,
    ConfluentProducer,
    ConfluentTransactionalProducer,
)
from penstock.errors import TaskMigratedError

IMPLEMENTATIONS: list[tuple[type, type]] = [
    (api.Admin, ConfluentAdmin),
    (api.Fetcher, ConfluentFetcher),
    (api.Consumer, ConfluentConsumer),
    (api.Producer, ConfluentProducer),
    (api.BatchProducer, ConfluentBatchProducer),
    (api.TransactionalProducer, ConfluentTransactionalProducer),
]


def parameters(function: Any) -> list[tuple[str, object]]:
    return [(each.name, each.default) for each in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize(("protocol", "client"), IMPLEMENTATIONS)
def test_a_client_has_the_methods_and_parameters_of_its_protocol(protocol: type, client: type) -> None:
    methods = {name: each for name, each in vars(protocol).items() if inspect.isfunction(each) and name[0] != "_"}
    assert "close" in methods
    for name, method in methods.items():
        for (wanted, default), (given, own_default) in zip(
            parameters(method), parameters(getattr(client, name)), strict=True
        ):
            assert (wanted, default) == (given, default if default is inspect.Parameter.empty else own_default), name


def test_counts_and_epochs_that_are_unknown_are_those_of_kafka() -> None:
    topic = api.NewTopic("t")
    assert (topic.partitions, topic.replication_factor, topic.config) == (-1, -1, {})
    assert api.OffsetAndMetadata(7) == (7, "", -1)


def test_a_refused_commit_has_the_code_of_the_answer() -> None:
    error = api.CommitRefusedError("The group refuses it.", 25)
    assert isinstance(error, TaskMigratedError)
    assert (str(error), error.code) == ("The group refuses it.", 25)
