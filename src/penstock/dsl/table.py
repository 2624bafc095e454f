"""KTable: the operators of a table, a stream of updates by key. Every method adds nodes; nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, overload

from penstock.config import StreamsConfig
from penstock.dsl.arguments import inherited, option
from penstock.dsl.functions import checked, takes_key
from penstock.dsl.graph import Graph
from penstock.dsl.internal_sinks import lake_sink
from penstock.dsl.late_records import LateRecords
from penstock.dsl.options import Grouped, Materialized, Named, Produced, name_of
from penstock.dsl.suppressed import StrictBufferConfig, Suppressed
from penstock.dsl.table_joins import TableJoins
from penstock.dsl.type_variables import KR, VR, K, V
from penstock.errors import TopologyError
from penstock.lake.tables import Delta, Iceberg, LakeMode
from penstock.notebook import mime_bundle
from penstock.plan import names, nodes
from penstock.plan.suppliers import ValueTransformerSupplierLike, checked_value_transformer_supplier
from penstock.plan.upstream import window_grace_ms
from penstock.plan.versions import is_versioned_store, own_versions
from penstock.processor.suppress import SuppressConstraints
from penstock.serdes import Serde
from penstock.serdes.annotated import serde_of_result, serdes_of_pair
from penstock.state.api import StoreBuilder
from penstock.state.suppliers import TimeOrderedBufferBytesStoreSupplier

if TYPE_CHECKING:
    from penstock.dsl.grouped_table import KGroupedTable
    from penstock.dsl.stream import KStream
    from penstock.host.inline.head import Head


_OF_STREAMS = (
    *("flat_map", "flat_map_values", "foreach", "group_by_key", "map", "merge", "peek", "print", "process"),
    *("process_values", "repartition", "select_key", "split", "through", "to"),
)


class KTable(TableJoins[K, V], LateRecords[K, V]):
    """A table: the latest value of each key, as a stream of updates (Kafka class: KTable).

    The parameter `named` names the node of an operator: a string or `Named.as_("x")`; TopologyError if it is invalid.
    `materialized` with a name gives the table a store that can be queried; without a name it only sets serdes.

    Args:
        graph: the graph.
        id: the node with the updates.
        key_serde, value_serde: the serdes of the table.
        queryable_store_name: the user's name of its store, or None.
    """

    _instead: ClassVar[Mapping[str, str]] = {name: f"to_stream().{name}(...)" for name in _OF_STREAMS}

    def __init__(
        self,
        graph: Graph,
        id: nodes.NodeId,
        key_serde: Serde | None,
        value_serde: Serde | None,
        queryable_store_name: str | None,
    ) -> None:
        self._graph = graph
        self._id = id
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._queryable_store_name = queryable_store_name

    @property
    def queryable_store_name(self) -> str | None:
        """The user's name of the table's store, or None if the table cannot be queried."""
        return self._queryable_store_name

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, str]:
        return mime_bundle(self._graph.forms("KTable", self._id, self._key_serde, self._value_serde), include, exclude)

    def head(
        self, n: int = 20, config: StreamsConfig | Mapping[str, Any] | None = None, max_records: int = 100_000
    ) -> Head[K, V | None]:
        """Return the first updates of this table, None for a delete; see `KStream.head`.

        Args:
            n: maximum number of updates to return.
            config: the configuration, with bootstrap.servers, which may also be set by the environment
                (PENSTOCK_BOOTSTRAP_SERVERS), and the default serdes.
            max_records: maximum number of records read from the source topics, and from each global table.

        Raises:
            ValueError: `n` or `max_records` is below 1.
            ConfigError: bootstrap.servers is missing, or a value is invalid.
            TopologyError: the program cannot be built.
            StreamsError: a source topic is missing, no broker answers, or a processor fails.
        """
        between = nodes.TableToStreamNode(name=f"{self._graph.name_of(self._id)}-updates")
        return self._graph.head(self._id, (self._key_serde, self._value_serde), n, config, max_records, between)

    # ---------------------------------------- operators that keep the key

    def filter(
        self,
        predicate: Callable[[K, V], bool],
        named: Named | str | None = None,
        materialized: Materialized | None = None,
    ) -> KTable[K, V]:
        """Return the table of the entries that match `predicate(key, value)`; the others are deleted."""
        return self._filtered(predicate, named, materialized, negate=False)

    def filter_not(
        self,
        predicate: Callable[[K, V], bool],
        named: Named | str | None = None,
        materialized: Materialized | None = None,
    ) -> KTable[K, V]:
        """Return the table of entries that do not match `predicate(key, value)`; others are deleted."""
        return self._filtered(predicate, named, materialized, negate=True)

    def _filtered(
        self,
        predicate: Callable[[Any, Any], bool],
        named: Named | str | None,
        materialized: Materialized | None,
        negate: bool,
    ) -> KTable:
        checked(predicate, "predicate(key, value)")
        options, store, versioned = self._store(materialized, names.TABLE_FILTER, self._value_serde)
        node = nodes.TableFilterNode(
            name=self._name(named, names.TABLE_FILTER),
            parents=(self._id,),
            predicate=predicate,
            negate=negate,
            store=store,
            versioned=versioned,
        )
        return self._table(node, options)

    @overload
    def map_values(
        self,
        mapper: Callable[[V], VR],
        named: Named | str | None = None,
        materialized: Materialized | None = None,
    ) -> KTable[K, VR]: ...
    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], VR],
        named: Named | str | None = None,
        materialized: Materialized | None = None,
    ) -> KTable[K, VR]: ...
    def map_values(
        self,
        mapper: Callable[..., VR],
        named: Named | str | None = None,
        materialized: Materialized | None = None,
    ) -> KTable[K, VR]:
        """Return the table with the value `mapper(value)` for each entry; None deletes the entry.

        If `mapper` requires two arguments, the value is `mapper(key, value)`.
        """
        with_key = takes_key(mapper, "mapper")
        options, store, versioned = self._store(materialized, names.TABLE_MAP_VALUES, serde_of_result(mapper))
        node = nodes.TableMapValuesNode(
            name=self._name(named, names.TABLE_MAP_VALUES),
            parents=(self._id,),
            mapper=mapper,
            with_key=with_key,
            store=store,
            versioned=versioned,
        )
        return self._table(node, options)

    def transform_values(
        self,
        supplier: ValueTransformerSupplierLike,
        *store_names: str,
        named: Named | str | None = None,
        materialized: Materialized | None = None,
    ) -> KTable[K, Any]:
        """Return the table with values returned by your own transformer, including for deleted entries.

        Args:
            supplier: a ValueTransformerWithKeySupplier, or any callable without arguments that returns a new
                ValueTransformerWithKey; its stores are added and connected.
            store_names: names of further stores to connect.
            named: name of the node.
            materialized: the store of the table.
        """
        transformers = checked_value_transformer_supplier(supplier)
        options, store, versioned = self._store(materialized, None, None)
        node = nodes.TableTransformValuesNode(
            name=self._name(named, names.TABLE_TRANSFORM_VALUES),
            parents=(self._id,),
            supplier=transformers,
            store_names=store_names,
            store=store,
            versioned=versioned,
        )
        return self._table(node, options)

    def suppress(self, suppressed: Suppressed) -> KTable[K, V]:
        """Return the table with fewer updates, according to the options `suppressed`.

        Updates are held back until a time limit passes, or until their windows close. Raises TopologyError for a
        versioned table, and for `until_window_closes` on a table without windows.
        """
        if not isinstance(suppressed, Suppressed):
            raise TypeError(
                f"Expected Suppressed, got {suppressed!r}: write "
                "Suppressed.until_window_closes(BufferConfig.unbounded()) or Suppressed.until_time_limit(...)."
            )
        plan = self._graph.plan()
        if own_versions(plan[self._id]):
            raise TopologyError("suppress() is only supported for non-versioned KTables")
        name = suppressed.name or self._graph.names.new_processor_name(names.TABLE_SUPPRESS)
        limit, buffer = suppressed.time_limit_ms, suppressed.buffer_config
        constraints = SuppressConstraints(
            wait_ms=window_grace_ms(plan, self._id) if limit is None else limit,
            until_window_closes=limit is None,
            max_records=buffer.record_limit,
            max_bytes=buffer.byte_limit,
            shut_down=isinstance(buffer, StrictBufferConfig),
        )
        store_name = f"{name}-store" if suppressed.name else self._graph.names.new_store_name(names.TABLE_SUPPRESS)
        store = StoreBuilder(
            TimeOrderedBufferBytesStoreSupplier(store_name),
            key_serde=self._key_serde,
            value_serde=self._value_serde,
            logging=buffer.logging,
            changelog_config=buffer.changelog_config,
        )
        node = nodes.TableSuppressNode(name=name, parents=(self._id,), store=store, constraints=constraints)
        return self._graph.table(self._graph.add(node), self._key_serde, self._value_serde, None)

    @overload
    def to_stream(self, mapper: None = None, named: Named | str | None = None) -> KStream[K, V]: ...
    @overload
    def to_stream(self, mapper: Callable[[K, V], KR], named: Named | str | None = None) -> KStream[KR, V]: ...
    def to_stream(
        self, mapper: Callable[[K, V], KR] | None = None, named: Named | str | None = None
    ) -> KStream[Any, V]:
        """Return the updates as records: the new value under its key, None if the key was deleted.

        Args:
            mapper: returns another key for each record, `mapper(key, value)`.
            named: name of the node.
        """
        name = self._name(named, names.TABLE_TO_STREAM)
        id = self._graph.add(nodes.TableToStreamNode(name=name, parents=(self._id,)))
        stream = self._graph.stream(id, self._key_serde, self._value_serde, repartition_required=False)
        return stream if mapper is None else stream.select_key(mapper)

    def to_lake(self, table: Iceberg | Delta, produced: Produced | None = None, partitions: int | None = None) -> None:
        """Keep a table of a data lake equal to this one: a row for each key.

        As `KStream.to_lake`, but an update replaces the row of its key, and a deleted key has no row. The columns of
        the key are never null: `_key`, or `_key_x` for each field `x` of a key that is an object; windowed keys also
        have `_window_start` and `_window_end`. Of several updates of a key, a commit writes the last one.

        Args:
            table: `Iceberg` or `Delta`, of `penstock.lake`.
            produced: serdes, if they differ from those of the table; partitioner, by the key only; name of the node and
                thus of the topic; a name keeps both when the program changes.
            partitions: of a new topic; None for `num.partitions`.

        Raises:
            ValueError: `partitions` is below 1.
            TypeError: `table` is not a table of a lake.
        """
        stream = self.to_stream()
        self._graph.add(lake_sink(self._graph, stream._id, table, LakeMode.UPSERT, produced, partitions))

    def group_by(
        self, mapper: Callable[[K, V], tuple[KR, VR] | None], grouped: Grouped | None = None
    ) -> KGroupedTable[KR, VR]:
        """Return the entries grouped by the key of `mapper(key, value)`, which returns (key, value).

        They are repartitioned by that key; an entry is omitted if the result is None or a pair with None. Serdes
        missing in `grouped` are the configured defaults, else those of the annotation.
        """
        checked(mapper, "mapper(key, value)")
        options = inherited("group_by", option(grouped, Grouped()), *serdes_of_pair(mapper))
        name = self._graph.names.processor_name(options.name, names.TABLE_SELECT)
        id = self._graph.add(nodes.TableGroupByNode(name=name, parents=(self._id,), mapper=mapper))
        return self._graph.grouped_table(id, options)

    # ---------------------------------------- results

    def _name(self, named: Named | str | None, prefix: str) -> str:
        return self._graph.names.processor_name(name_of(named), prefix)

    def _store(
        self, materialized: Materialized | None, prefix: str | None, value_serde: Serde | None
    ) -> tuple[Materialized, StoreBuilder | None, bool | None]:
        """Return the options, the store if named, and whether it makes the table versioned.

        The options are `materialized` with the key serde of this table and `value_serde` for missing ones.
        """
        options = inherited("The table", option(materialized, Materialized()), self._key_serde, value_serde)
        if materialized is None:
            return options, None, None
        name = options.user_store_name
        if name is None:
            if prefix is not None:
                self._graph.names.new_store_name(prefix)  # Kafka takes the number even without a store
            return options, None, False
        store = options.store_builder(name, None, None)
        return options, store, is_versioned_store(store)

    def _table(self, node: nodes.GraphNode, options: Materialized) -> KTable:
        """Return the table of `node`, with the serdes of `options`."""
        return self._graph.table(self._graph.add(node), options.key_serde, options.value_serde, options.user_store_name)
