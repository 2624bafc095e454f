"""Records that were read from topics between DataFrames and an application are deleted in time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from penstock.client.api import Admin
from penstock.errors import KafkaError
from penstock.host.commits.purging import RecordPurge
from penstock.record import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Deleting:
    """Takes deletions, or refuses them; the part of an Admin that is used."""

    def __init__(self) -> None:
        self.deleted: list[Mapping[TopicPartition, int]] = []
        self.refuses = False

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        if self.refuses:
            raise KafkaError("no")
        self.deleted.append(before)


def test_records_are_deleted_once_an_interval() -> None:
    admin, now = Deleting(), [1_000]
    purge = RecordPurge(500, lambda: now[0])
    for time, position in ((1_000, 1), (1_499, 2), (1_500, 3), (1_900, 4), (2_100, 5)):
        now[0] = time
        purge.purge(cast(Admin, admin), {T0: position, T1: 0})
    assert admin.deleted == [{T0: 3}, {T0: 5}]


def test_what_is_refused_is_asked_for_again() -> None:
    admin, now = Deleting(), [0]
    purge = RecordPurge(10, lambda: now[0])
    admin.refuses = True
    now[0] = 10
    purge.purge(cast(Admin, admin), {T0: 1})
    admin.refuses = False
    now[0] = 19
    purge.purge(cast(Admin, admin), {T0: 2})
    now[0] = 20
    purge.purge(cast(Admin, admin), {T0: 3})
    assert admin.deleted == [{T0: 3}]


def test_nothing_is_asked_where_there_are_no_such_topics() -> None:
    admin = Deleting()
    RecordPurge(0, lambda: 1).purge(cast(Admin, admin), {})
    assert not admin.deleted
