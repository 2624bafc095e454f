"""The joins of KTable: with a table by key, and with a table by a foreign key from each row.

Only nodes are added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Never, overload

from penstock.dsl.arguments import (
    check_by_name,
    check_keys_meet,
    check_same_builder,
    first,
    inherited,
    is_function,
    option,
)
from penstock.dsl.functions import checked, takes_key
from penstock.dsl.graph import Graph
from penstock.dsl.join_options import TableJoined
from penstock.dsl.options import Materialized, Named, name_of
from penstock.dsl.shell import Shell
from penstock.dsl.type_variables import KO, VO, VR, K, V
from penstock.plan import names, nodes
from penstock.processor.joiner import JoinType
from penstock.serdes import BytesSerde, Serde
from penstock.serdes.annotated import serde_of_result
from penstock.serdes.subscription import SubscriptionWrapperSerde
from penstock.state.api import StoreBuilder
from penstock.state.suppliers import KeyValueBytesStoreSupplier

if TYPE_CHECKING:
    from penstock.dsl.table import KTable

_TOPIC = "-topic"
_BY_KEY: Final = ("named", "materialized")
_BY_FOREIGN_KEY: Final = ("table_joined", "materialized")


class TableJoins(Shell, Generic[K, V]):
    """The joins of KTable.

    A `joiner` is a function `joiner(value, other_value)` that returns the value of the result; None deletes it.
    """

    _graph: Graph
    _id: nodes.NodeId
    _key_serde: Serde | None
    _value_serde: Serde | None

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO], VR],
        *,
        named: Named | str | None = None,
        materialized: Materialized | None = None,
    ) -> KTable[K, VR]: ...

    @overload
    def join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[V, VO], VR],
        *,
        foreign_key_extractor: Callable[[V], KO | None],
        table_joined: TableJoined | None = None,
        materialized: Materialized | None = None,
    ) -> KTable[K, VR]: ...

    @overload
    def join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[V, VO], VR],
        *,
        foreign_key_extractor: Callable[[K, V], KO | None],
        table_joined: TableJoined | None = None,
        materialized: Materialized | None = None,
    ) -> KTable[K, VR]: ...

    def join(self, other: KTable[Any, VO], joiner: Callable[..., VR], *given: Any, **options: Any) -> KTable[K, VR]:
        """Return the table of keys in both tables.

        Args:
            other: the other table.
            joiner: returns the value of the result for the values of both tables.
            foreign_key_extractor: `extractor(value)`, or `extractor(key, value)` if it requires two arguments, returns
                the key of `other` for a row of this table (KIP-213); without it, both tables are joined by their keys.
            named: name of the nodes of a join by key.
            table_joined: names and partitioners of a foreign-key join.
            materialized: the store of the result.
        """
        return self._join(JoinType.INNER, other, joiner, given, **options)

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO | None], VR],
        *,
        named: Named | str | None = None,
        materialized: Materialized | None = None,
    ) -> KTable[K, VR]: ...

    @overload
    def left_join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[V, VO | None], VR],
        *,
        foreign_key_extractor: Callable[[V], KO | None],
        table_joined: TableJoined | None = None,
        materialized: Materialized | None = None,
    ) -> KTable[K, VR]: ...

    @overload
    def left_join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[V, VO | None], VR],
        *,
        foreign_key_extractor: Callable[[K, V], KO | None],
        table_joined: TableJoined | None = None,
        materialized: Materialized | None = None,
    ) -> KTable[K, VR]: ...

    def left_join(
        self, other: KTable[Any, VO], joiner: Callable[..., VR], *given: Any, **options: Any
    ) -> KTable[K, VR]:
        """Like `join`, with all keys of this table; the joiner receives None for missing values."""
        return self._join(JoinType.LEFT, other, joiner, given, **options)

    def outer_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V | None, VO | None], VR],
        *given: Never,
        named: Named | str | None = None,
        materialized: Materialized | None = None,
    ) -> KTable[K, VR]:
        """Like `join` by key, with the keys of either table.

        The joiner receives None for missing values.
        """
        return self._join(JoinType.OUTER, other, joiner, given, named=named, materialized=materialized)

    # ---------------------------------------- by key

    def _join(
        self,
        type: JoinType,
        other: TableJoins,
        joiner: Callable[[Any, Any], Any],
        given: Sequence[Any],
        foreign_key_extractor: Callable[..., Any] | None = None,
        **options: Any,
    ) -> KTable:
        if not isinstance(other, TableJoins):
            raise TypeError(f"Expected a KTable to join with, got {other!r}.")
        check_same_builder(self._graph, other._graph)
        if given and is_function(given[0]):  # Java's order: extractor, then joiner
            raise TypeError(
                "A join by foreign key takes the joiner first, and the foreign_key_extractor by name: "
                "join(table, joiner, foreign_key_extractor=lambda value: ...)."
            )
        if foreign_key_extractor is not None:
            check_by_name("A join of two tables by foreign key", _BY_FOREIGN_KEY, given, options)
            checked(joiner, "joiner(value, other_value)")
            return self._join_on_foreign_key(type, other, joiner, foreign_key_extractor, **options)
        check_by_name("A join of two tables by key", _BY_KEY, given, options)
        checked(joiner, "joiner(value, other_value)")
        return self._join_on_key(type, other, joiner, **options)

    def _join_on_key(
        self,
        type: JoinType,
        other: TableJoins,
        joiner: Callable[[Any, Any], Any],
        named: Named | str | None = None,
        materialized: Materialized | None = None,
    ) -> KTable:
        check_keys_meet(self._graph, self._id, self._key_serde, other._id, other._key_serde)
        provider, name = self._graph.names, name_of(named)
        options = option(materialized, Materialized())
        options = inherited(
            "The result of the join", options, first(self._key_serde, other._key_serde), serde_of_result(joiner)
        )
        store = None if materialized is None else self._result_store(options, names.TABLE_MERGE)
        merge = provider.processor_name(name, names.TABLE_MERGE)
        join = nodes.TableTableJoinNode(
            name=merge,
            parents=tuple(dict.fromkeys((self._id, other._id))),
            this_table=self._id,
            other_table=other._id,
            joiner=joiner,
            type=type,
            this_join=provider.suffixed_name(name, "-join-this", names.TABLE_JOIN_THIS),
            other_join=provider.suffixed_name(name, "-join-other", names.TABLE_JOIN_OTHER),
            store=store,
        )
        return self._graph.table(self._graph.add(join), options.key_serde, options.value_serde, options.user_store_name)

    def _result_store(self, options: Materialized, prefix: str) -> StoreBuilder:
        """Return the store of a join's result.

        Without a user's name, the name takes a number from the counter.
        """
        name = options.user_store_name or self._graph.names.new_store_name(prefix)
        return options.store_builder(name, None, None)

    # ---------------------------------------- by foreign key

    def _join_on_foreign_key(
        self,
        type: JoinType,
        other: TableJoins,
        joiner: Callable[[Any, Any], Any],
        extractor: Callable[..., Any],
        table_joined: TableJoined | None = None,
        materialized: Materialized | None = None,
    ) -> KTable:
        with_key = takes_key(extractor, "foreign_key_extractor")
        extracted = serde_of_result(extractor, is_key=True)
        check_keys_meet(self._graph, self._id, extracted, other._id, other._key_serde, "foreign keys")
        options = option(table_joined, TableJoined())
        kept = inherited(
            "The result of the join", option(materialized, Materialized()), self._key_serde, serde_of_result(joiner)
        )
        join_names = _foreign_key_names(self._graph.names, options.name)
        store = self._result_store(kept, names.FOREIGN_KEY_JOIN_OUTPUT)
        # Subscriptions go to the task of the foreign key and are stored there; answers return to the primary key.
        subscriptions = _subscription_store(join_names.subscription_store, self._key_serde)
        subscription = self._graph.add(
            nodes.ForeignKeySubscriptionNode(
                name=join_names.join_foreign,
                parents=(self._id,),
                foreign_table=other._id,
                extractor=extractor,
                with_key=with_key,
                type=type,
                names=join_names,
                store=subscriptions,
                partitioner=options.other_partitioner,
                primary_key_serde=self._key_serde,
                primary_value_serde=self._value_serde,
                foreign_key_serde=other._key_serde,
            )
        )
        update = self._graph.add(
            nodes.ForeignTableJoinNode(
                name=join_names.foreign_join,
                parents=(other._id,),
                registration_topic=join_names.registration_topic,
                store=subscriptions,
                foreign_key_serde=other._key_serde,
            )
        )
        join = nodes.ForeignKeyJoinNode(
            name=join_names.result,
            parents=(subscription, update),
            primary_table=self._id,
            joiner=joiner,
            type=type,
            names=join_names,
            partitioner=options.partitioner,
            primary_key_serde=self._key_serde,
            primary_value_serde=self._value_serde,
            foreign_value_serde=other._value_serde,
            store=store,
            queryable=kept.user_store_name is not None,
        )
        return self._graph.table(self._graph.add(join), kept.key_serde, kept.value_serde, kept.user_store_name)


def _subscription_store(name: str, primary_key_serde: Serde | None) -> StoreBuilder:
    return StoreBuilder(
        KeyValueBytesStoreSupplier(name, None),
        BytesSerde(),
        SubscriptionWrapperSerde(primary_key_serde),
        timestamped=True,
        logs_headers=True,
    )


def _foreign_key_names(provider: names.InternalNameProvider, name: str | None) -> nodes.ForeignKeyNames:
    """Return the names of a foreign-key join, with the prefix `name`.

    If it is None, they are generated and take their numbers from the counter in this order.
    """

    def named(suffix: str, prefix: str) -> str:
        return provider.suffixed_name(name, suffix, prefix)

    return nodes.ForeignKeyNames(
        registration_topic=named("-subscription-registration", names.SUBSCRIPTION_REGISTRATION) + _TOPIC,
        registration=named("-subscription-registration-processor", names.SUBSCRIPTION_REGISTRATION),
        registration_sink=named("-subscription-registration-sink", names.TABLE_SINK),
        registration_source=named("-subscription-registration-source", names.TABLE_SOURCE),
        subscription_store=named("-subscription-store", names.SUBSCRIPTION_STORE),
        receive=named("-subscription-receive", names.SUBSCRIPTION_PROCESSOR),
        join_foreign=named("-subscription-join-foreign", names.SUBSCRIPTION_PROCESSOR),
        foreign_join=named("-foreign-join-subscription", names.SUBSCRIPTION_PROCESSOR),
        response_topic=named("-subscription-response", names.SUBSCRIPTION_RESPONSE) + _TOPIC,
        response_sink=named("-subscription-response-sink", names.TABLE_SINK),
        response_source=named("-subscription-response-source", names.TABLE_SOURCE),
        resolver=named("-subscription-response-resolver", names.SUBSCRIPTION_RESPONSE_RESOLVER),
        result=named("-result", names.FOREIGN_KEY_JOIN_OUTPUT),
    )
