"""The records that an operator drops, as the records of a topic."""

from __future__ import annotations

from typing import Generic, Self

from penstock.dsl.arguments import first, option
from penstock.dsl.graph import Graph
from penstock.dsl.options import Produced
from penstock.dsl.returning_records import check_no_return
from penstock.dsl.shell import Shell
from penstock.dsl.type_variables import K, V
from penstock.errors import TopologyError
from penstock.plan import names, nodes
from penstock.plan.droppers import drops_records
from penstock.plan.internal_topics import check_topic_name
from penstock.plan.user_lines import at_line, made_at
from penstock.processor.added_values import AddedValues
from penstock.processor.count_window import FullWindows


class LateRecords(Shell, Generic[K, V]):
    """The writing of dropped records, for KStream and KTable."""

    _graph: Graph
    _id: nodes.NodeId

    def late_to(self, topic: str, produced: Produced | None = None) -> Self:
        """Write the records that the operator of this object drops to a topic.

        Write it directly after the operator: an aggregation, also in windows of time or of n records, a join of a
        stream, `table`, `to_table`, a deduplication or `repartition`. The topic receives one record for each one that
        the operator counts as dropped: late for a window, an expired version of a table or the store of a join, without
        the key or value that the operator needs, or a duplicate. A record that is late for several windows is written
        for each of them. The keys that a repartition for the operator drops are included.

        A record has the key and value of its source record, and its timestamp and headers in the operator. Headers
        `penstock.dropped.*` have the reason, window, stream time, node, and source topic, partition and offset, so that
        `penstock redrive` can write it back. If the source record is no longer known, such as after a record cache, the
        record has the key and value in the operator, and no source.

        Args:
            topic: an existing topic.
            produced: serdes of the operator's input, where the program does not say them; partitioner; name of the
                node.

        Returns this object.

        Raises:
            TopologyError: the operator drops no records or reads the topic itself, or the name of the topic is illegal.
            TypeError: the topic is not a string.
        """
        if not isinstance(topic, str):
            raise TypeError(f"Expected the name of a topic for dropped records, got {topic!r}.")
        check_topic_name(topic)
        id = self._dropping()
        operator = self._graph.node(id)
        writes = f"late_to{at_line()} writes the dropped records of "
        check_no_return(self._graph, id, topic, f"{writes}{operator.name}{made_at(operator.line)}", "be dropped")
        options = option(produced, Produced())
        inputs = [self._graph.serdes_of(each) for each in self._inputs(id)]
        self._graph.add(
            nodes.DroppedRecordsNode(
                name=self._graph.names.processor_name(options.name, names.STREAM_SINK),
                parents=(id,),
                topic=topic,
                key_serde=first(options.key_serde, *(key_serde for key_serde, _ in inputs)),
                value_serdes=tuple(first(options.value_serde, value_serde) for _, value_serde in inputs),
                partitioner=options.partitioner,
            )
        )
        return self

    def _dropping(self) -> nodes.NodeId:
        """Return the node of the operator; raises TopologyError if it drops no records."""
        node = self._graph.node(self._id)
        if drops_records(node):
            return self._id
        if isinstance(node, nodes.TableMapValuesNode) and self._has_results(node):
            return node.parents[0]
        if isinstance(node, nodes.FlatMapValuesNode) and isinstance(node.mapper, FullWindows):
            (updates,) = node.parents
            return self._graph.node(updates).parents[0]
        raise TopologyError(
            f"late_to{at_line()} cannot write dropped records of "
            f"{node.name}{made_at(node.line)}, which drops none. Write late_to directly after the operator that drops "
            "them: an aggregation, a join of a stream, table, to_table, a deduplication or repartition."
        )

    def _has_results(self, node: nodes.TableMapValuesNode) -> bool:
        """Return whether `node` has the results of a ready aggregation, one operator for the user."""
        match self._graph.node(node.parents[0]):
            case (
                nodes.AggregateNode(aggregator=AddedValues(aggregation=aggregation))
                | nodes.TimeWindowedAggregateNode(aggregator=AddedValues(aggregation=aggregation))
                | nodes.SlidingWindowedAggregateNode(aggregator=AddedValues(aggregation=aggregation))
                | nodes.SessionWindowedAggregateNode(aggregator=AddedValues(aggregation=aggregation))
            ):
                return bool(node.mapper == aggregation.result)
            case _:
                return False

    def _inputs(self, id: nodes.NodeId) -> tuple[nodes.NodeId, ...]:
        """Return the nodes whose records the operator `id` receives: itself if it reads a topic."""
        node = self._graph.node(id)
        if isinstance(node, nodes.CogroupMergeNode):
            return tuple(above for parent in node.parents for above in self._graph.node(parent).parents)
        return node.parents or (id,)
