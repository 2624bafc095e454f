"""Kafka's names of configuration keys and some of their values, as attributes of StreamsConfig.

A key may be written as its text or as its constant.
"""

from __future__ import annotations

from typing import Final


class ConfigConstants:
    """Kafka's constants (Kafka class: StreamsConfig)."""

    TOPIC_PREFIX: Final = "topic."
    CONSUMER_PREFIX: Final = "consumer."
    MAIN_CONSUMER_PREFIX: Final = "main.consumer."
    RESTORE_CONSUMER_PREFIX: Final = "restore.consumer."
    GLOBAL_CONSUMER_PREFIX: Final = "global.consumer."
    PRODUCER_PREFIX: Final = "producer."
    ADMIN_CLIENT_PREFIX: Final = "admin."
    CLIENT_TAG_PREFIX: Final = "client.tag."
    NO_OPTIMIZATION: Final = "none"
    OPTIMIZE: Final = "all"
    REUSE_KTABLE_SOURCE_TOPICS: Final = "reuse.ktable.source.topics"
    MERGE_REPARTITION_TOPICS: Final = "merge.repartition.topics"
    SINGLE_STORE_SELF_JOIN: Final = "single.store.self.join"
    UPGRADE_FROM_24: Final = "2.4"
    UPGRADE_FROM_25: Final = "2.5"
    UPGRADE_FROM_26: Final = "2.6"
    UPGRADE_FROM_27: Final = "2.7"
    UPGRADE_FROM_28: Final = "2.8"
    UPGRADE_FROM_30: Final = "3.0"
    UPGRADE_FROM_31: Final = "3.1"
    UPGRADE_FROM_32: Final = "3.2"
    UPGRADE_FROM_33: Final = "3.3"
    UPGRADE_FROM_34: Final = "3.4"
    UPGRADE_FROM_35: Final = "3.5"
    UPGRADE_FROM_36: Final = "3.6"
    UPGRADE_FROM_37: Final = "3.7"
    UPGRADE_FROM_38: Final = "3.8"
    UPGRADE_FROM_39: Final = "3.9"
    UPGRADE_FROM_40: Final = "4.0"
    UPGRADE_FROM_41: Final = "4.1"
    UPGRADE_FROM_42: Final = "4.2"
    UPGRADE_FROM_43: Final = "4.3"
    AT_LEAST_ONCE: Final = "at_least_once"
    EXACTLY_ONCE_V2: Final = "exactly_once_v2"
    RACK_AWARE_ASSIGNMENT_STRATEGY_NONE: Final = "none"
    RACK_AWARE_ASSIGNMENT_STRATEGY_MIN_TRAFFIC: Final = "min_traffic"
    RACK_AWARE_ASSIGNMENT_STRATEGY_BALANCE_SUBTOPOLOGY: Final = "balance_subtopology"
    METRICS_LATEST: Final = "latest"
    ACCEPTABLE_RECOVERY_LAG_CONFIG: Final = "acceptable.recovery.lag"
    ALLOW_OS_GROUP_WRITE_ACCESS_CONFIG: Final = "allow.os.group.write.access"
    APPLICATION_ID_CONFIG: Final = "application.id"
    APPLICATION_SERVER_CONFIG: Final = "application.server"
    BOOTSTRAP_SERVERS_CONFIG: Final = "bootstrap.servers"
    BUFFERED_RECORDS_PER_PARTITION_CONFIG: Final = "buffered.records.per.partition"
    BUILT_IN_METRICS_VERSION_CONFIG: Final = "built.in.metrics.version"
    CACHE_MAX_BYTES_BUFFERING_CONFIG: Final = "cache.max.bytes.buffering"
    CLIENT_ID_CONFIG: Final = "client.id"
    COMMIT_INTERVAL_MS_CONFIG: Final = "commit.interval.ms"
    CONNECTIONS_MAX_IDLE_MS_CONFIG: Final = "connections.max.idle.ms"
    DEFAULT_CLIENT_SUPPLIER_CONFIG: Final = "default.client.supplier"
    DEFAULT_DESERIALIZATION_EXCEPTION_HANDLER_CLASS_CONFIG: Final = "default.deserialization.exception.handler"
    DESERIALIZATION_EXCEPTION_HANDLER_CLASS_CONFIG: Final = "deserialization.exception.handler"
    DEFAULT_PRODUCTION_EXCEPTION_HANDLER_CLASS_CONFIG: Final = "default.production.exception.handler"
    PRODUCTION_EXCEPTION_HANDLER_CLASS_CONFIG: Final = "production.exception.handler"
    DEFAULT_DSL_STORE_CONFIG: Final = "default.dsl.store"
    ROCKS_DB: Final = "rocksDB"
    IN_MEMORY: Final = "in_memory"
    DEFAULT_DSL_STORE: Final = "rocksDB"
    DSL_STORE_SUPPLIERS_CLASS_CONFIG: Final = "dsl.store.suppliers.class"
    DSL_STORE_FORMAT_CONFIG: Final = "dsl.store.format"
    DSL_STORE_FORMAT_DEFAULT: Final = "DEFAULT"
    DSL_STORE_FORMAT_HEADERS: Final = "HEADERS"
    DEFAULT_INTERACTIVE_QUERY_ISOLATION_LEVEL_CONFIG: Final = "default.interactive.query.isolation.level"
    DEFAULT_INTERACTIVE_QUERY_ISOLATION_LEVEL_DEFAULT: Final = "READ_UNCOMMITTED"
    DEFAULT_KEY_SERDE_CLASS_CONFIG: Final = "default.key.serde"
    DEFAULT_VALUE_SERDE_CLASS_CONFIG: Final = "default.value.serde"
    DEFAULT_TIMESTAMP_EXTRACTOR_CLASS_CONFIG: Final = "default.timestamp.extractor"
    ENABLE_METRICS_PUSH_CONFIG: Final = "enable.metrics.push"
    ENSURE_EXPLICIT_INTERNAL_RESOURCE_NAMING_CONFIG: Final = "ensure.explicit.internal.resource.naming"
    GROUP_PROTOCOL_CONFIG: Final = "group.protocol"
    DEFAULT_GROUP_PROTOCOL: Final = "classic"
    TOPOLOGY_DESCRIPTION_PUSH_ENABLED_CONFIG: Final = "topology.description.push.enabled"
    ERRORS_DEAD_LETTER_QUEUE_TOPIC_NAME_CONFIG: Final = "errors.dead.letter.queue.topic.name"
    LOG_SUMMARY_INTERVAL_MS_CONFIG: Final = "log.summary.interval.ms"
    MAX_TASK_IDLE_MS_CONFIG: Final = "max.task.idle.ms"
    MAX_TASK_IDLE_MS_DISABLED: Final = -1
    MAX_WARMUP_REPLICAS_CONFIG: Final = "max.warmup.replicas"
    METADATA_MAX_AGE_CONFIG: Final = "metadata.max.age.ms"
    METRICS_NUM_SAMPLES_CONFIG: Final = "metrics.num.samples"
    METRICS_RECORDING_LEVEL_CONFIG: Final = "metrics.recording.level"
    METRIC_REPORTER_CLASSES_CONFIG: Final = "metric.reporters"
    METRICS_SAMPLE_WINDOW_MS_CONFIG: Final = "metrics.sample.window.ms"
    NUM_STANDBY_REPLICAS_CONFIG: Final = "num.standby.replicas"
    NUM_STREAM_THREADS_CONFIG: Final = "num.stream.threads"
    POLL_MS_CONFIG: Final = "poll.ms"
    PROBING_REBALANCE_INTERVAL_MS_CONFIG: Final = "probing.rebalance.interval.ms"
    PROCESSING_EXCEPTION_HANDLER_CLASS_CONFIG: Final = "processing.exception.handler"
    PROCESSING_GUARANTEE_CONFIG: Final = "processing.guarantee"
    PROCESSOR_WRAPPER_CLASS_CONFIG: Final = "processor.wrapper.class"
    REPARTITION_PURGE_INTERVAL_MS_CONFIG: Final = "repartition.purge.interval.ms"
    RECEIVE_BUFFER_CONFIG: Final = "receive.buffer.bytes"
    RACK_AWARE_ASSIGNMENT_NON_OVERLAP_COST_CONFIG: Final = "rack.aware.assignment.non_overlap_cost"
    RACK_AWARE_ASSIGNMENT_STRATEGY_CONFIG: Final = "rack.aware.assignment.strategy"
    RACK_AWARE_ASSIGNMENT_TAGS_CONFIG: Final = "rack.aware.assignment.tags"
    RACK_AWARE_ASSIGNMENT_TRAFFIC_COST_CONFIG: Final = "rack.aware.assignment.traffic_cost"
    RECONNECT_BACKOFF_MS_CONFIG: Final = "reconnect.backoff.ms"
    RECONNECT_BACKOFF_MAX_MS_CONFIG: Final = "reconnect.backoff.max.ms"
    REPLICATION_FACTOR_CONFIG: Final = "replication.factor"
    REQUEST_TIMEOUT_MS_CONFIG: Final = "request.timeout.ms"
    RETRY_BACKOFF_MS_CONFIG: Final = "retry.backoff.ms"
    ROCKSDB_CONFIG_SETTER_CLASS_CONFIG: Final = "rocksdb.config.setter"
    SECURITY_PROTOCOL_CONFIG: Final = "security.protocol"
    SEND_BUFFER_CONFIG: Final = "send.buffer.bytes"
    STATE_CLEANUP_DELAY_MS_CONFIG: Final = "state.cleanup.delay.ms"
    STATE_CLEANUP_DIR_MAX_AGE_MS_CONFIG: Final = "state.cleanup.dir.max.age.ms"
    STATE_CLEANUP_DIR_MAX_AGE_MS_DISABLED: Final = -1
    STATE_DIR_CONFIG: Final = "state.dir"
    STATESTORE_CACHE_MAX_BYTES_CONFIG: Final = "statestore.cache.max.bytes"
    STATESTORE_UNCOMMITTED_MAX_BYTES_CONFIG: Final = "statestore.uncommitted.max.bytes"
    TASK_ASSIGNOR_CLASS_CONFIG: Final = "task.assignor.class"
    TASK_TIMEOUT_MS_CONFIG: Final = "task.timeout.ms"
    TRANSACTIONAL_STATE_STORES_CONFIG: Final = "enable.transactional.statestores"
    UPGRADE_FROM_CONFIG: Final = "upgrade.from"
    TOPOLOGY_OPTIMIZATION_CONFIG: Final = "topology.optimization"
    WINDOWED_INNER_CLASS_SERDE: Final = "windowed.inner.class.serde"
    WINDOW_SIZE_MS_CONFIG: Final = "window.size.ms"
    WINDOW_STORE_CHANGE_LOG_ADDITIONAL_RETENTION_MS_CONFIG: Final = "windowstore.changelog.additional.retention.ms"
    PROCESSING_EXCEPTION_HANDLER_GLOBAL_ENABLED_CONFIG: Final = "processing.exception.handler.global.enabled"

    @staticmethod
    def consumer_prefix(key: str) -> str:
        """Return the key for all consumers only."""
        return f"{ConfigConstants.CONSUMER_PREFIX}{key}"

    @staticmethod
    def main_consumer_prefix(key: str) -> str:
        """Return the key for consumers of source topics only."""
        return f"{ConfigConstants.MAIN_CONSUMER_PREFIX}{key}"

    @staticmethod
    def restore_consumer_prefix(key: str) -> str:
        """Return the key for consumers that restore stores only."""
        return f"{ConfigConstants.RESTORE_CONSUMER_PREFIX}{key}"

    @staticmethod
    def global_consumer_prefix(key: str) -> str:
        """Return the key for consumers of global stores only."""
        return f"{ConfigConstants.GLOBAL_CONSUMER_PREFIX}{key}"

    @staticmethod
    def producer_prefix(key: str) -> str:
        """Return the key for producers only."""
        return f"{ConfigConstants.PRODUCER_PREFIX}{key}"

    @staticmethod
    def admin_client_prefix(key: str) -> str:
        """Return the key for admin clients only."""
        return f"{ConfigConstants.ADMIN_CLIENT_PREFIX}{key}"

    @staticmethod
    def topic_prefix(key: str) -> str:
        """Return the key for a config of internal topics."""
        return f"{ConfigConstants.TOPIC_PREFIX}{key}"

    @staticmethod
    def client_tag_prefix(key: str) -> str:
        """Return the key for a tag of this client."""
        return f"{ConfigConstants.CLIENT_TAG_PREFIX}{key}"
