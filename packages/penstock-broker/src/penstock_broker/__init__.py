"""A single-node Kafka broker in Python for tests and development.

It has a durable log and listens on a loopback address.

`EmbeddedBroker` starts one in a process of its own; the command `penstock-broker` runs one in the foreground.

Supported APIs and versions (see the table in apis.py):

    Produce 3-12 (announced from 0)   Fetch 4-16            ListOffsets 1-9        Metadata 0-12
    OffsetCommit 2-10                 OffsetFetch 1-10      FindCoordinator 0-6    ApiVersions 0-4
    CreateTopics 2-7                  DeleteTopics 1-6      InitProducerId 0-5     DescribeConfigs 1-4
    AlterConfigs 0-2                  IncrementalAlterConfigs 0-1                  DescribeLogDirs 1-4
    CreatePartitions 0-3              DescribeCluster 0-1   DeleteRecords 0-2      OffsetForLeaderEpoch 2-4
    DescribeClientQuotas 0-1          AlterClientQuotas 0-1 DescribeTopicPartitions 0-0
    JoinGroup 0-9                     SyncGroup 0-5         Heartbeat 0-4          LeaveGroup 0-5
    ConsumerGroupHeartbeat 0-1        ConsumerGroupDescribe 0-1
    StreamsGroupHeartbeat 0-1         StreamsGroupDescribe 0-1
    StreamsGroupTopologyDescriptionUpdate 0-0
    DescribeGroups 0-6                ListGroups 0-5        DeleteGroups 0-2       OffsetDelete 0-0
    AddPartitionsToTxn 0-5            AddOffsetsToTxn 0-4   TxnOffsetCommit 0-5    EndTxn 0-5
    DescribeProducers 0-0             WriteTxnMarkers 1-2   ListTransactions 0-2   DescribeTransactions 0-0

Tested with confluent-kafka (librdkafka 2.16), kafka-python 3.0, aiokafka 0.14, kcat, and the Java client and tools of
Kafka 4.3.

Limitations:

- Transactions: two-phase commit (KIP-939) is not announced.
- Groups: share groups are not announced. A group with members keeps its protocol: classic, consumer (KIP-848) or
  streams (KIP-1071), which has no standby tasks and no warm-ups.
- Topic configuration: every accepted value takes effect. `compression.type` other than producer, `preallocate` and
  `unclean.leader.election.enable` are rejected.
- Broker configuration: only topic defaults can change at run time; groups use the broker's configuration.
- Quotas: only by client id; quotas of users and addresses are rejected.
- ACLs, SASL and TLS are not announced.
- One replica: acks=all means that this broker has the record. As in Kafka, a segment is forced to disk when it is
  closed, and earlier only if the topic asks for it (`flush.messages`, `flush.ms`). Records therefore survive the death
  of the process, but perhaps not a power failure.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock_broker.embedded_broker import EmbeddedBroker
    from penstock_broker.errors import BrokerError

__version__ = "0.3.0.dev0"

__all__ = ["BrokerError", "EmbeddedBroker"]

_MODULES = {"BrokerError": "penstock_broker.errors", "EmbeddedBroker": "penstock_broker.embedded_broker"}


def __getattr__(name: str) -> Any:
    """Return a public name, loading its module on first use.

    The broker process needs neither name.
    """
    if name not in _MODULES:
        raise AttributeError(f"module 'penstock_broker' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
