"""Facts about the tables of a plan that nodes below them need.

These are: the tables that send old values, the tables with a store, the access to a table's values from another node,
and the versions of updates.

Rules: a node asks when it is created, so the answers depend on the order of the program. A later question does not
change earlier nodes (a filter skips updates from no value to no value only if its parent had a store by then). All
facts are derived from the finished plan; nothing is added to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.errors import TopologyError
from penstock.plan import nodes as n
from penstock.plan.versions import own_versions
from penstock.processor.suppress import SuppressedValueGetterSupplier
from penstock.processor.table import (
    ComputedValueGetterSupplier,
    FilteredValue,
    MappedValue,
    StoreValueGetterSupplier,
    TransformedValue,
    ValueComputation,
    ValueGetterSupplier,
)
from penstock.processor.table_join import JoinedValueGetterSupplier
from penstock.processor.windowed_values import SessionStoreValueGetterSupplier, WindowStoreValueGetterSupplier
from penstock.state.api import StoreBuilder


class TableFacts:
    """The facts about the tables of one plan.

    All nodes of the plan ask in the order of their creation. Kafka determines the facts during the construction of the
    program (Kafka methods: KTableImpl.enableSendingOldValues, KTableImpl.valueGetterSupplier,
    InternalStreamsBuilder.enableVersionedSemantics).
    """

    def __init__(self, plan: n.Plan) -> None:
        self._plan = plan
        self._sending: set[n.NodeId] = set()
        self._needed: set[n.NodeId] = set()
        for id in sorted(plan):
            self._ask(id, plan[id])

    # ---------------------------------------- answers

    def sends_old_values(self, id: n.NodeId) -> bool:
        """Return whether the table `id` forwards the previous value with each update."""
        return id in self._sending

    def store(self, id: n.NodeId) -> StoreBuilder | None:
        """Return the store of the table `id`, or None without a store."""
        node = self._plan[id]
        match node:
            case n.TableSourceNode() | n.StreamToTableNode() | n.ForeignKeyJoinNode():
                if not node.queryable and id not in self._needed:
                    return None
                reuses = isinstance(node, n.TableSourceNode) and node.reuse_topic
                return node.store.with_logging_disabled() if reuses else node.store
            case n.TableFilterNode() | n.TableMapValuesNode() | n.TableTransformValuesNode():
                return node.store
            case (
                n.CountNode()
                | n.ReduceNode()
                | n.AggregateNode()
                | n.TableCountNode()
                | n.TableReduceNode()
                | n.TableAggregateNode()
            ):
                return node.store
            case n.WindowedTableNode() | n.CogroupMergeNode() | n.TableTableJoinNode():
                return node.store
            case n.TableSuppressNode():
                return None
            case _:
                raise self._no_table(id)

    def value_getter(self, id: n.NodeId) -> ValueGetterSupplier:
        """Return the supplier of value getters of the table `id`, for other nodes.

        A getter reads the table's store, or computes the values from the tables above.
        """
        node, store = self._plan[id], self.store(id)
        match node:
            case n.SessionWindowedAggregateNode():
                return SessionStoreValueGetterSupplier(node.store.name)
            case n.WindowedTableNode():
                return WindowStoreValueGetterSupplier(node.store.name)
            case n.CogroupMergeNode():
                return self.value_getter(node.parents[0])
            case n.TableSuppressNode():
                return SuppressedValueGetterSupplier(self.value_getter(node.parents[0]), node.store.name)
            case _ if store is not None:
                return StoreValueGetterSupplier(store.name)
            case n.TableTableJoinNode():
                this, other = self.value_getter(node.this_table), self.value_getter(node.other_table)
                return JoinedValueGetterSupplier(this, other, node.joiner, node.type)
            case _:
                return ComputedValueGetterSupplier(self.value_getter(node.parents[0]), self.computation(id))

    def computation(self, id: n.NodeId) -> Callable[[], ValueComputation]:
        """Return the factory of computations of the table `id` from its parent."""
        node = self._plan[id]
        match node:
            case n.TableFilterNode():
                return partial(FilteredValue, node.predicate, node.negate)
            case n.TableMapValuesNode():
                return partial(MappedValue, node.mapper, node.with_key)
            case n.TableTransformValuesNode():
                return partial(TransformedValue, node.supplier)
            case _:
                raise self._no_table(id)

    def is_versioned(self, id: n.NodeId) -> bool:
        """Return whether the updates of the table `id` are those of a versioned table.

        Its store determines that, or else all its parents.
        """
        node = self._plan[id]
        own = own_versions(node)
        if own is not None:
            return own
        return bool(node.parents) and all(self.is_versioned(parent) for parent in node.parents)

    # ---------------------------------------- questions

    def _ask(self, id: n.NodeId, node: n.GraphNode) -> None:
        """Register the requirements of `node` on its parents at its creation."""
        match node:
            case n.TableFilterNode():
                if self._enable_old_values(node.parents[0], force_materialization=False):
                    self._sending.add(id)
            case n.TableGroupByNode() | n.TableSuppressNode():
                self._enable_old_values(node.parents[0], force_materialization=True)
            case n.TableTableJoinNode() | n.StreamTableJoinNode() | n.ForeignKeySubscriptionNode():
                self._ask_for_join(node)
            case _:
                pass

    def _ask_for_join(self, node: n.TableTableJoinNode | n.StreamTableJoinNode | n.ForeignKeySubscriptionNode) -> None:
        """Register the requirements of `node` on the tables that it joins."""
        match node:
            case n.StreamTableJoinNode():
                self._need_values(node.table)
            case n.TableTableJoinNode():
                sides = ((node.this_table, node.type.keeps_left), (node.other_table, node.type.keeps_right))
                for table, has_result_alone in sides:
                    if has_result_alone:
                        self._enable_old_values(table, force_materialization=True)
                for table, _ in sides:
                    self._need_values(table)
            case n.ForeignKeySubscriptionNode():
                for table in (node.foreign_table, node.parents[0]):
                    self._enable_old_values(table, force_materialization=True)
                    self._need_values(table)

    def _enable_old_values(self, id: n.NodeId, force_materialization: bool) -> bool:
        """Make the table `id` send old values if possible; returns whether it does.

        A source needs a store for that. If it has no store, it gets one only with `force_materialization`.
        """
        if id in self._sending:
            return True
        node = self._plan[id]
        match node:
            case n.TableSourceNode() | n.StreamToTableNode() | n.ForeignKeyJoinNode():
                if not force_materialization and self.store(id) is None:
                    return False
                self._needed.add(id)
            case n.TableFilterNode() | n.TableMapValuesNode() | n.TableTransformValuesNode():
                if node.store is None and not self._enable_old_values(node.parents[0], force_materialization):
                    return False
            case n.TableSuppressNode():
                if not self._enable_old_values(node.parents[0], force_materialization):
                    return False
            case (
                n.CountNode()
                | n.ReduceNode()
                | n.AggregateNode()
                | n.TableCountNode()
                | n.TableReduceNode()
                | n.TableAggregateNode()
                | n.WindowedTableNode()
            ):
                pass
            case n.CogroupMergeNode():
                for parent in node.parents:
                    self._enable_old_values(parent, force_materialization)
            case n.TableTableJoinNode():
                for table in (node.this_table, node.other_table):
                    self._enable_old_values(table, force_materialization=True)
            case _:
                raise self._no_table(id)
        self._sending.add(id)
        return True

    def _need_values(self, id: n.NodeId) -> None:
        """Give the source of the table `id` a store, since another node reads the table."""
        node = self._plan[id]
        if isinstance(node, n.TableSourceNode | n.StreamToTableNode | n.ForeignKeyJoinNode):
            self._needed.add(id)
        elif not isinstance(node, n.TableTableJoinNode) and self.store(id) is None:  # a join needs both at its creation
            self._need_values(node.parents[0])

    def _no_table(self, id: n.NodeId) -> TopologyError:
        return TopologyError(f"Node {self._plan[id].name} is no table.")
