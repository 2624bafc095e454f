"""The joins of KStream: with a stream within windows, a table by key, a global table by a selected key.

Only nodes are added; a side whose keys may have changed is repartitioned first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, overload

from penstock.dsl.arguments import (
    check_by_name,
    check_fits,
    check_keys_meet,
    check_same_builder,
    first,
    inherited,
    is_function,
    option,
)
from penstock.dsl.functions import checked, joiner_keys, takes_key
from penstock.dsl.global_table import GlobalKTable
from penstock.dsl.graph import Graph
from penstock.dsl.join_options import Joined, StreamJoined
from penstock.dsl.join_stores import StreamJoinStores
from penstock.dsl.options import Named, name_of
from penstock.dsl.shell import Shell
from penstock.dsl.table_joins import TableJoins
from penstock.dsl.type_variables import KO, VO, VR, K, V
from penstock.plan import names, nodes
from penstock.plan.versions import NOT_VERSIONED, may_be_versioned
from penstock.processor.joiner import JoinType
from penstock.serdes import Serde
from penstock.serdes.annotated import serde_of_result
from penstock.serdes.buffer import BufferKeySerde, BufferValueSerde
from penstock.state.api import StoreBuilder
from penstock.state.suppliers import TimeOrderedKeyValueBytesStoreSupplier
from penstock.windows import JoinWindows

if TYPE_CHECKING:
    from penstock.dsl.stream import KStream
    from penstock.dsl.table import KTable

_TWO_STREAMS: Final = "A join of two streams"
_OF_STREAMS: Final = ("stream_joined",)
_OF_TABLE: Final = ("joined",)
_OF_GLOBAL_TABLE: Final = ("key_selector", "named")


class StreamJoins(Shell, Generic[K, V]):
    """The joins of KStream.

    A `joiner` is a function of the two values, or of key and the two values if it requires three arguments; the left
    value is this stream's. With a global table, a joiner that requires four arguments takes the key of the record, the
    selected key and the two values (KIP-1340). Records without key or value have no result, unless a method states
    otherwise.
    """

    _graph: Graph
    _id: nodes.NodeId
    _key_serde: Serde | None
    _value_serde: Serde | None
    _repartition_required: bool
    _join_repartition: nodes.NodeId | None = None

    @overload
    def join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO], VR],
        windows: JoinWindows,
        *,
        stream_joined: StreamJoined | None = None,
    ) -> KStream[K, VR]: ...

    @overload
    def join(
        self, other: KTable[K, VO], joiner: Callable[[V, VO], VR], *, joined: Joined | None = None
    ) -> KStream[K, VR]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[KO, VO],
        joiner: Callable[[V, VO], VR],
        *,
        key_selector: Callable[[K, V], KO | None],
        named: Named | str | None = None,
    ) -> KStream[K, VR]: ...

    @overload
    def join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO], VR],
        windows: JoinWindows,
        *,
        stream_joined: StreamJoined | None = None,
    ) -> KStream[K, VR]: ...

    @overload
    def join(
        self, other: KTable[K, VO], joiner: Callable[[K, V, VO], VR], *, joined: Joined | None = None
    ) -> KStream[K, VR]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[KO, VO],
        joiner: Callable[[K, V, VO], VR],
        *,
        key_selector: Callable[[K, V], KO | None],
        named: Named | str | None = None,
    ) -> KStream[K, VR]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[KO, VO],
        joiner: Callable[[K, KO, V, VO], VR],
        *,
        key_selector: Callable[[K, V], KO | None],
        named: Named | str | None = None,
    ) -> KStream[K, VR]: ...

    def join(
        self,
        other: Any,
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        *given: Any,
        **options: Any,
    ) -> Any:
        """Return the results for records of this stream with a matching record of `other`.

        Args:
            other: a stream, a table, or a global table.
            joiner: returns the result for the two values; it may take keys before them, see StreamJoins.
            windows: the maximum time between records of two streams.
            stream_joined: with a stream: serdes, names and stores.
            joined: with a table: serdes, name, grace period.
            key_selector: with a global table: `key_selector(key, value)` returns the key to look up.
            named: with a global table: name of the node.
        """
        return self._join(JoinType.INNER, other, joiner, windows, given, options)

    @overload
    def left_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO | None], VR],
        windows: JoinWindows,
        *,
        stream_joined: StreamJoined | None = None,
    ) -> KStream[K, VR]: ...

    @overload
    def left_join(
        self, other: KTable[K, VO], joiner: Callable[[V, VO | None], VR], *, joined: Joined | None = None
    ) -> KStream[K, VR]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[KO, VO],
        joiner: Callable[[V, VO | None], VR],
        *,
        key_selector: Callable[[K, V], KO | None],
        named: Named | str | None = None,
    ) -> KStream[K, VR]: ...

    @overload
    def left_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO | None], VR],
        windows: JoinWindows,
        *,
        stream_joined: StreamJoined | None = None,
    ) -> KStream[K, VR]: ...

    @overload
    def left_join(
        self, other: KTable[K, VO], joiner: Callable[[K, V, VO | None], VR], *, joined: Joined | None = None
    ) -> KStream[K, VR]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[KO, VO],
        joiner: Callable[[K, V, VO | None], VR],
        *,
        key_selector: Callable[[K, V], KO | None],
        named: Named | str | None = None,
    ) -> KStream[K, VR]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[KO, VO],
        joiner: Callable[[K, KO | None, V, VO | None], VR],
        *,
        key_selector: Callable[[K, V], KO | None],
        named: Named | str | None = None,
    ) -> KStream[K, VR]: ...

    def left_join(
        self,
        other: Any,
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        *given: Any,
        **options: Any,
    ) -> Any:
        """Like `join`, but unmatched records of this stream also have a result.

        Its other value is None. This includes records without a key. With windows, the result follows at the end of the
        window.
        """
        return self._join(JoinType.LEFT, other, joiner, windows, given, options)

    @overload
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V | None, VO | None], VR],
        windows: JoinWindows,
        *,
        stream_joined: StreamJoined | None = None,
    ) -> KStream[K, VR]: ...

    @overload
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V | None, VO | None], VR],
        windows: JoinWindows,
        *,
        stream_joined: StreamJoined | None = None,
    ) -> KStream[K, VR]: ...

    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[..., VR],
        windows: JoinWindows,
        *given: Any,
        **options: Any,
    ) -> KStream[K, VR]:
        """Like `left_join` with a stream, but unmatched records of `other` also have a result.

        In it, this stream's value is None.
        """
        if not isinstance(other, StreamJoins):
            raise TypeError(f"Expected a KStream for an outer join, got {other!r}.")
        check_by_name(_TWO_STREAMS, _OF_STREAMS, given, options)
        return self._join_stream(JoinType.OUTER, other, joiner, windows, **options)

    # ---------------------------------------- by the kind of the other side

    def _join(
        self,
        type: JoinType,
        other: Any,
        joiner: Callable[..., Any],
        windows: Any,
        given: Sequence[Any],
        options: Mapping[str, Any],
    ) -> KStream:
        if isinstance(other, StreamJoins):
            check_by_name(_TWO_STREAMS, _OF_STREAMS, given, options)
            return self._join_stream(type, other, joiner, windows, **options)
        if not isinstance(other, TableJoins | GlobalKTable):
            read = f": read the topic, as in builder.table({other!r})" if isinstance(other, str) else ""
            raise TypeError(f"Expected a KStream, KTable or GlobalKTable to join with, got {other!r}{read}.")
        if isinstance(windows, JoinWindows):
            kind = other.__class__.__name__
            raise TypeError(
                f"Windows are for joins with a KStream, and the other side is a {kind}: leave them out. A record joins "
                "the newest value of its key."
            )
        behind = given if windows is None else (windows, *given)
        if isinstance(other, TableJoins):
            check_by_name("A join of a stream with a table", _OF_TABLE, behind, options)
            return self._join_table(type, other, joiner, **options)
        if behind and is_function(behind[0]):  # Java's order: key selector, then joiner
            raise TypeError(
                "A join with a global table takes the joiner first, and the key selector by name: "
                "join(table, joiner, key_selector=lambda key, value: key)."
            )
        check_by_name("A join of a stream with a global table", _OF_GLOBAL_TABLE, behind, options)
        return self._join_global_table(type, other, joiner, **options)

    def _join_stream(
        self,
        type: JoinType,
        other: StreamJoins,
        joiner: Callable[..., Any],
        windows: JoinWindows | None,
        stream_joined: StreamJoined | None = None,
    ) -> KStream:
        with_key = takes_key(joiner, "joiner", ("value", "other_value"))
        if not isinstance(windows, JoinWindows):
            raise TypeError(
                f"Expected JoinWindows for a join of two streams, got {windows!r}: write "
                "JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=5)). To join with the newest value of "
                "each key instead, read the other topic as a table: builder.table(topic)."
            )
        check_same_builder(self._graph, other._graph)
        check_keys_meet(self._graph, self._id, self._key_serde, other._id, other._key_serde)
        options = option(stream_joined, StreamJoined())
        options = inherited("StreamJoined", options, first(self._key_serde, other._key_serde), self._value_serde)
        check_fits("StreamJoined", "other value", options.other_value_serde, other._value_serde)
        options = options.with_other_value_serde(first(options.other_value_serde, other._value_serde))
        left = self._copartitioned(_suffixed(options.name, "-left"), options.key_serde, options.value_serde)
        right = other._copartitioned(_suffixed(options.name, "-right"), options.key_serde, options.other_value_serde)
        provider, name = self._graph.names, options.name
        # Each generated name counts up, so names are taken in the order of Kafka Streams: changelog topics have them.
        this_windowed = provider.suffixed_name(name, "-this-windowed", names.STREAM_WINDOWED)
        other_windowed = provider.suffixed_name(name, "-other-windowed", names.STREAM_WINDOWED)
        this_prefix = names.STREAM_OUTER_THIS if type.keeps_right else names.STREAM_JOIN_THIS
        other_prefix = names.STREAM_OUTER_OTHER if type.keeps_left else names.STREAM_JOIN_OTHER
        this_generated, other_generated = map(provider.new_processor_name, (this_prefix, other_prefix))
        this_suffix = "-outer-this-join" if type.keeps_right else "-this-join"
        other_suffix = "-outer-other-join" if type.keeps_left else "-other-join"
        merge = provider.suffixed_name(name, "-merge", names.STREAM_MERGE)
        stores = StreamJoinStores(options, windows)
        this_store = stores.this(this_generated, this_suffix)
        other_store = stores.other(other_generated, other_suffix)
        add = self._graph.add
        add(nodes.StreamJoinWindowNode(name=this_windowed, parents=(left,), store=this_store))
        add(nodes.StreamJoinWindowNode(name=other_windowed, parents=(right,), store=other_store))
        join = nodes.StreamStreamJoinNode(
            name=merge,
            parents=tuple(dict.fromkeys((left, right))),
            joiner=joiner,
            with_key=with_key,
            windows=windows,
            type=type,
            this_windowed=this_windowed,
            other_windowed=other_windowed,
            this_join=_suffixed(name, this_suffix) or this_generated,
            other_join=_suffixed(name, other_suffix) or other_generated,
            this_store=this_store,
            other_store=other_store,
            outer_store=stores.outer(type, this_generated),
        )
        return self._graph.stream(add(join), options.key_serde, serde_of_result(joiner), repartition_required=False)

    def _join_table(
        self, type: JoinType, table: TableJoins, joiner: Callable[..., Any], joined: Joined | None = None
    ) -> KStream:
        with_key = takes_key(joiner, "joiner", ("value", "table_value"))
        options = inherited("Joined", option(joined, Joined()), self._key_serde, self._value_serde)
        check_same_builder(self._graph, table._graph)
        check_keys_meet(self._graph, self._id, options.key_serde, table._id, table._key_serde)
        parent = self._copartitioned(options.name, options.key_serde, options.value_serde)
        prefix = names.STREAM_LEFT_JOIN if type.keeps_left else names.STREAM_JOIN
        name = self._graph.names.processor_name(options.name, prefix)
        buffer = None
        if options.grace_period_ms is not None:
            if not may_be_versioned(self._graph.node(table._id)):
                raise ValueError(NOT_VERSIONED)
            supplier = TimeOrderedKeyValueBytesStoreSupplier(f"{name}-Buffer", in_memory=False)
            buffer = StoreBuilder(supplier, BufferKeySerde(options.key_serde), BufferValueSerde(options.value_serde))
        join = nodes.StreamTableJoinNode(
            name=name,
            parents=(parent,),
            table=table._id,
            joiner=joiner,
            with_key=with_key,
            type=type,
            grace_period_ms=options.grace_period_ms,
            buffer=buffer,
        )
        return self._graph.stream(
            self._graph.add(join), options.key_serde, serde_of_result(joiner), repartition_required=False
        )

    def _join_global_table(
        self,
        type: JoinType,
        table: GlobalKTable,
        joiner: Callable[..., Any],
        key_selector: Callable[[Any, Any], Any] | None = None,
        named: Named | str | None = None,
    ) -> KStream:
        keys = joiner_keys(joiner)
        if key_selector is None:
            raise TypeError(
                "A join with a global table needs the key to look up for each record of the stream: give it with "
                "key_selector, such as key_selector=lambda key, value: key."
            )
        checked(key_selector, "key_selector(key, value)")
        selected = serde_of_result(key_selector, is_key=True)
        check_keys_meet(self._graph, self._id, selected, table._id, table._key_serde, "selected keys")
        join = nodes.StreamGlobalTableJoinNode(
            name=self._graph.names.processor_name(name_of(named), names.STREAM_LEFT_JOIN),
            parents=(self._id,),
            table_store=table.store_name,
            key_selector=key_selector,
            joiner=joiner,
            keys=keys,
            type=type,
        )
        return self._graph.stream(
            self._graph.add(join),
            self._key_serde,
            serde_of_result(joiner),
            repartition_required=self._repartition_required,
        )

    def _copartitioned(self, name: str | None, key_serde: Serde | None, value_serde: Serde | None) -> nodes.NodeId:
        """Return the node with records on the partitions of their keys: this stream, or a repartition.

        The repartition is called `name`, or is named after the stream if `name` is None; joins without a name share
        one.
        """
        if not self._repartition_required:
            return self._id
        prefix = self._graph.node(self._id).name if name is None else name
        node = nodes.RepartitionNode.below(self._id, prefix, self._graph.names, key_serde, value_serde)
        if self._join_repartition is None or name is not None:
            self._join_repartition = self._graph.add(node)
        return self._join_repartition


def _suffixed(name: str | None, suffix: str) -> str | None:
    return None if name is None else names.check_name(name + suffix)
