import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.ZoneId;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.Windows;
import org.apache.kafka.streams.kstream.internals.TimeWindow;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;

/**
 * The topology of `twin.py` in Java. Reads one command per line and answers each with a line:
 * "start APPLICATION SERVERS STATE_DIR GUARANTEE STORE_FORMAT INPUTS COMMIT_INTERVAL_MS" answers when all tasks run,
 * "close APPLICATION" when it has left its group.
 */
public final class Twin {
    private static final Serde<String> STRING = Serdes.String();
    private static final Map<String, KafkaStreams> RUNNING = new HashMap<>();

    public static void main(final String[] arguments) throws IOException {
        final BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            final String[] command = line.split(" ");
            switch (command[0]) {
                case "start" -> start(command);
                case "close" -> {
                    final KafkaStreams streams = RUNNING.remove(command[1]);
                    streams.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
                    say("closed " + command[1]);
                }
                default -> Runtime.getRuntime().halt(0);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static synchronized void say(final String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static void start(final String[] command) {
        final String application = command[1];
        final Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, command[2]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, command[3]);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, command[4]);
        config.put(StreamsConfig.DSL_STORE_FORMAT_CONFIG, command[5]);
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        final int commitIntervalMs = Integer.parseInt(command[7]);
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, commitIntervalMs);
        config.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), Math.max(10_000, commitIntervalMs));
        config.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 86_400_000);
        config.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        config.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);
        config.put("__emit.interval.ms.kstreams.windowed.aggregation__", 0L);
        final KafkaStreams streams = new KafkaStreams(topology(command[6], application, config), config);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                say("running " + application);
            }
        });
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            say("failed " + application + " " + error);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        RUNNING.put(application, streams);
        streams.start();
    }

    private static Topology topology(final String inputs, final String application, final Properties config) {
        final StreamsBuilder builder = new StreamsBuilder();
        final Produced<String, Long> counted = Produced.with(STRING, Serdes.Long());

        builder.<String, String>stream(inputs + "words")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.as("words"))
            .count(Materialized.as("counts"))
            .toStream().to(application + "-out-words", counted);

        builder.<String, String>stream(inputs + "clicks")
            .groupByKey(Grouped.with(STRING, STRING))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(5)))
            .count(Materialized.as("clicks-per-window"))
            .toStream(Twin::named).to(application + "-out-clicks", counted);

        builder.<String, String>stream(inputs + "visits")
            .groupByKey(Grouped.with(STRING, STRING))
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(4), Duration.ofSeconds(2)))
            .reduce((before, value) -> before + value, Materialized.as("sessions"))
            .toStream(Twin::named).to(application + "-out-visits");

        builder.<String, String>stream(inputs + "left")
            .leftJoin(
                builder.<String, String>stream(inputs + "right"),
                (left, right) -> left + "+" + right,
                JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(3), Duration.ofSeconds(2)),
                StreamJoined.with(STRING, STRING, STRING).withName("matching").withStoreName("matched"))
            .to(application + "-out-left");

        builder.<String, String>stream(inputs + "readings")
            .groupByKey(Grouped.with(STRING, STRING))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(2)))
            .count(Materialized.as("readings-per-window"))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()).withName("held"))
            .toStream(Twin::named).to(application + "-out-readings", counted);

        builder.<String, String>stream(inputs + "meters")
            .groupByKey(Grouped.with(STRING, STRING))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(2)))
            .emitStrategy(EmitStrategy.onWindowClose())
            .count(Materialized.as("meters-per-window"))
            .toStream(Twin::named).to(application + "-out-meters", counted);

        final KTable<String, String> customers = builder.table(inputs + "customers", Materialized.as("customers"));
        builder.<String, String>table(inputs + "orders")
            .leftJoin(
                customers,
                order -> order.split(":")[0],
                (order, customer) -> order + "+" + customer,
                TableJoined.as("billing"),
                Materialized.as("billed"))
            .toStream().to(application + "-out-orders");

        final KTable<String, String> prices = builder.table(inputs + "prices",
            Materialized.as(Stores.persistentVersionedKeyValueStore("prices", Duration.ofSeconds(20))));
        builder.<String, String>stream(inputs + "sales")
            .join(prices, (sale, price) -> sale + "@" + price,
                Joined.<String, String, String>as("priced").withGracePeriod(Duration.ofSeconds(4)))
            .to(application + "-out-sales");

        builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("latest"), STRING, STRING));
        builder.<String, String>stream(inputs + "events")
            .process(Latest::new, "latest")
            .to(application + "-out-events");

        builder.<String, String>stream(inputs + "days")
            .groupByKey(Grouped.with(STRING, STRING))
            .windowedBy(new Days())
            .count(Materialized.as("days"))
            .toStream(Twin::named).to(application + "-out-days", counted);

        builder.addStateStore(Stores.timestampedKeyValueStoreBuilder(
            Stores.persistentTimestampedKeyValueStore("recent"), STRING, Serdes.Long()));
        builder.<String, String>stream(inputs + "taps")
            .process(Recent::new, "recent")
            .to(application + "-out-taps", counted);
        return builder.build(config);
    }

    private static String named(final Windowed<String> key, final Object value) {
        return key.key() + "@" + key.window().start() + "-" + key.window().end();
    }

    private static final class Latest extends ContextualProcessor<String, String, String, String> {
        private KeyValueStore<String, String> latest;

        @Override
        public void init(final ProcessorContext<String, String> context) {
            super.init(context);
            latest = context.getStateStore("latest");
        }

        @Override
        public void process(final Record<String, String> record) {
            context().forward(record.withValue(latest.get(record.key()) + ">" + record.value()));
            latest.put(record.key(), record.value().equals("x") ? null : record.value());
        }
    }

    /** The days of Berlin; the size is that of the longest. */
    private static final class Days extends Windows<TimeWindow> {
        private static final ZoneId ZONE = ZoneId.of("Europe/Berlin");

        @Override
        public Map<Long, TimeWindow> windowsFor(final long timestamp) {
            final LocalDate day = Instant.ofEpochMilli(timestamp).atZone(ZONE).toLocalDate();
            return Map.of(start(day), new TimeWindow(start(day), start(day.plusDays(1))));
        }

        private static long start(final LocalDate day) {
            return day.atStartOfDay(ZONE).toInstant().toEpochMilli();
        }

        @Override
        public long size() {
            return Duration.ofHours(25).toMillis();
        }

        @Override
        public long gracePeriodMs() {
            return Duration.ofHours(2).toMillis();
        }
    }

    /** Counts the records of a key since it was silent for a time, and deletes nothing. */
    private static final class Recent extends ContextualProcessor<String, String, String, Long> {
        private static final long TIME_TO_LIVE_MS = 5_000;

        private TimestampedKeyValueStore<String, Long> recent;

        @Override
        public void init(final ProcessorContext<String, Long> context) {
            super.init(context);
            recent = context.getStateStore("recent");
        }

        @Override
        public void process(final Record<String, String> record) {
            ValueAndTimestamp<Long> before = recent.get(record.key());
            if (before == null || before.timestamp() + TIME_TO_LIVE_MS <= context().currentStreamTimeMs()) {
                before = ValueAndTimestamp.make(0L, record.timestamp());
            }
            final long time = Math.max(before.timestamp(), record.timestamp());
            final long count = before.value() + 1;
            recent.put(record.key(), ValueAndTimestamp.make(count, time));
            context().forward(record.withValue(count).withTimestamp(time));
        }
    }
}
