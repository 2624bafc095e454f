import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;

/** The queries of Nexmark, as in nexmark/queries.py; runs until its standard input is closed. */
public final class NexmarkBenchmark {
    private static final String INPUT = "nexmark-events";
    private static final String SIDE_INPUT = "nexmark-side-input";
    private static final String OUTPUT = "nexmark-results";
    private static final Duration WINDOW = Duration.ofSeconds(10);
    private static final Duration HOP = Duration.ofSeconds(2);
    private static final Duration GRACE = Duration.ofSeconds(10);
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final Pattern CHANNEL_ID = Pattern.compile("(?:&|^)channel_id=([^&]*)");
    private static final Map<String, String> CHANNELS =
        Map.of("apple", "0", "google", "1", "facebook", "2", "baidu", "3");
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<JsonNode> JSON = Serdes.serdeFrom(
        (topic, value) -> {
            try {
                return value == null ? null : MAPPER.writeValueAsBytes(value);
            } catch (final JsonProcessingException error) {
                throw new SerializationException(error);
            }
        },
        (topic, bytes) -> {
            try {
                return bytes == null ? null : MAPPER.readTree(bytes);
            } catch (final IOException error) {
                throw new SerializationException(error);
            }
        });

    private final StreamsBuilder builder = new StreamsBuilder();

    public static void main(final String[] arguments) throws IOException {
        final Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[0]);
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[1]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[3]);
        config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, arguments[4]);
        config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        final NexmarkBenchmark benchmark = new NexmarkBenchmark();
        benchmark.build(arguments[5]);
        final KafkaStreams streams = new KafkaStreams(benchmark.builder.build(), config);
        streams.start();
        while (System.in.read() >= 0) {
            // wait for the end of standard input
        }
        streams.close(Duration.ofSeconds(20));
    }

    private void build(final String query) {
        switch (query) {
            case "q0" -> write(bids());
            case "q1" -> write(bids().mapValues(bid -> copy(bid).put("price", bid.get("price").asLong() * 0.908)));
            case "q2" -> write(bids().filter((key, bid) -> bid.get("auction").asLong() % 123 == 0)
                .mapValues(bid -> some(bid, "auction", "price")));
            case "q3" -> q3();
            case "q4" -> q4();
            case "q5" -> q5();
            case "q7" -> q7();
            case "q8" -> q8();
            case "q9" -> write(winningBids().toStream());
            case "q11" -> q11();
            case "q13" -> q13();
            case "q14" -> q14();
            case "q15" -> both(bid -> day(bid));
            case "q16" -> both(bid -> bid.get("channel").asText() + "/" + day(bid));
            case "q17" -> q17();
            case "q18" -> q18();
            case "q19" -> q19();
            case "q20" -> q20();
            case "q21" -> q21();
            case "q22" -> q22();
            default -> throw new IllegalArgumentException("no query " + query);
        }
    }

    // What the queries share.

    private KStream<String, JsonNode> events() {
        return builder.stream(INPUT, Consumed.with(TEXT, JSON));
    }

    private KStream<String, JsonNode> bids() {
        return events().filter((key, event) -> event.get("event_type").asInt() == 2)
            .mapValues(event -> event.get("bid"));
    }

    private static KStream<String, JsonNode> keyed(
        final KStream<String, JsonNode> events, final int type, final String part, final String key) {
        return events.filter((none, event) -> event.get("event_type").asInt() == type)
            .map((none, event) -> KeyValue.pair(event.get(part).get(key).asText(), event.get(part)));
    }

    private static KStream<String, JsonNode> auctions(final KStream<String, JsonNode> events) {
        return keyed(events, 1, "auction", "id");
    }

    private static KStream<String, JsonNode> people(final KStream<String, JsonNode> events) {
        return keyed(events, 0, "person", "id");
    }

    private static KStream<String, JsonNode> bidsByAuction(final KStream<String, JsonNode> events) {
        return keyed(events, 2, "bid", "auction");
    }

    private static void write(final KStream<String, JsonNode> rows) {
        rows.to(OUTPUT, Produced.with(TEXT, JSON));
    }

    private static Grouped<String, JsonNode> grouped() {
        return Grouped.with(TEXT, JSON);
    }

    private static <S extends org.apache.kafka.streams.processor.StateStore> Materialized<String, JsonNode, S> stored() {
        return Materialized.with(TEXT, JSON);
    }

    private static ObjectNode copy(final JsonNode node) {
        final ObjectNode copied = NODES.objectNode();
        copied.setAll((ObjectNode) node);
        return copied;
    }

    private static ObjectNode some(final JsonNode node, final String... names) {
        final ObjectNode chosen = NODES.objectNode();
        for (final String name : names) {
            chosen.set(name, node.get(name));
        }
        return chosen;
    }

    private static String windowKey(final Windowed<String> windowed) {
        return windowed.key() + "@" + windowed.window().start();
    }

    private static long price(final JsonNode bid) {
        return bid.get("price").asLong();
    }

    private static long time(final JsonNode bid) {
        return bid.get("date_time").asLong();
    }

    private static String day(final JsonNode bid) {
        return LocalDate.ofInstant(Instant.ofEpochMilli(time(bid)), ZoneOffset.UTC).toString();
    }

    private static int rank(final JsonNode bid) {
        return price(bid) < 10_000 ? 1 : price(bid) < 1_000_000 ? 2 : 3;
    }

    // Bid by bid.

    private void q13() {
        final GlobalKTable<String, String> side = builder.globalTable(SIDE_INPUT, Consumed.with(TEXT, TEXT));
        write(bids().join(
            side,
            (key, bid) -> Long.toString(bid.get("auction").asLong() % 10_000),
            (bid, text) -> copy(bid).put("value", text)));
    }

    private void q14() {
        write(bids()
            .filter((key, bid) -> price(bid) * 0.908 > 1_000_000 && price(bid) * 0.908 < 50_000_000)
            .mapValues(bid -> {
                final int hour = Instant.ofEpochMilli(time(bid)).atOffset(ZoneOffset.UTC).getHour();
                final String name = hour >= 8 && hour <= 18 ? "dayTime"
                    : hour <= 6 || hour >= 20 ? "nightTime" : "otherTime";
                final String extra = bid.get("extra").asText();
                final ObjectNode row = some(bid, "auction", "bidder", "date_time", "extra");
                row.put("price", price(bid) * 0.908);
                row.put("bid_time_type", name);
                row.put("c_counts", extra.chars().filter(letter -> letter == 'c').count());
                return row;
            }));
    }

    private void q21() {
        write(bids().mapValues(bid -> {
            final String known = CHANNELS.get(bid.get("channel").asText().toLowerCase(Locale.ROOT));
            final ObjectNode row = some(bid, "auction", "bidder", "price", "channel");
            if (known != null) {
                return (JsonNode) row.put("channel_id", known);
            }
            final Matcher found = CHANNEL_ID.matcher(bid.get("url").asText());
            return (JsonNode) row.put("channel_id", found.find() ? found.group(1) : null);
        }).filter((key, bid) -> !bid.get("channel_id").isNull()));
    }

    private void q22() {
        write(bids().mapValues(bid -> {
            final String[] parts = bid.get("url").asText().split("/");
            return some(bid, "auction", "bidder", "price", "channel")
                .put("dir1", parts[3]).put("dir2", parts[4]).put("dir3", parts[5]);
        }));
    }

    // Joins.

    private void q3() {
        final KStream<String, JsonNode> events = events();
        final KTable<String, JsonNode> auctions = auctions(events)
            .filter((id, auction) -> auction.get("category").asInt() == 10).toTable(stored());
        final List<String> states = List.of("OR", "ID", "CA");
        final KTable<String, JsonNode> people = people(events)
            .filter((id, person) -> states.contains(person.get("state").asText())).toTable(stored());
        final KTable<String, JsonNode> found = auctions.join(
            people,
            auction -> auction.get("seller").asText(),
            (auction, person) -> some(person, "name", "city", "state").set("id", auction.get("id")));
        found.toStream().to(OUTPUT, Produced.with(TEXT, JSON));
    }

    private KStream<String, JsonNode> bidsWithAuctions(
        final org.apache.kafka.streams.kstream.ValueJoiner<JsonNode, JsonNode, JsonNode> joined) {
        final KStream<String, JsonNode> events = events();
        final JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(WINDOW, GRACE);
        return bidsByAuction(events)
            .join(auctions(events), joined, windows, StreamJoined.with(TEXT, JSON, JSON));
    }

    private static JsonNode better(final JsonNode one, final JsonNode other) {
        final Comparator<JsonNode> order = Comparator.comparingLong((JsonNode bid) -> -price(bid))
            .thenComparingLong(bid -> time(bid)).thenComparingLong(bid -> bid.get("bidder").asLong());
        return order.compare(one, other) <= 0 ? one : other;
    }

    private KTable<String, JsonNode> winningBids() {
        return bidsWithAuctions((bid, auction) -> {
            final ObjectNode row = copy(bid);
            row.set("category", auction.get("category"));
            return row.put("in_time", time(auction) <= time(bid) && time(bid) <= auction.get("expires").asLong());
        }).filter((key, bid) -> bid.get("in_time").asBoolean())
            .groupByKey(grouped()).reduce(NexmarkBenchmark::better, stored());
    }

    private void q4() {
        final JsonNode none = NODES.objectNode().put("sum", 0L).put("count", 0L);
        winningBids()
            .groupBy((id, bid) -> KeyValue.pair(bid.get("category").asText(), bid.get("price")), grouped())
            .aggregate(
                () -> none,
                (category, price, mean) -> NODES.objectNode()
                    .put("sum", mean.get("sum").asLong() + price.asLong())
                    .put("count", mean.get("count").asLong() + 1),
                (category, price, mean) -> NODES.objectNode()
                    .put("sum", mean.get("sum").asLong() - price.asLong())
                    .put("count", mean.get("count").asLong() - 1),
                stored())
            .toStream()
            .mapValues(mean -> mean.get("count").asLong() == 0 ? null
                : (JsonNode) NODES.numberNode((double) mean.get("sum").asLong() / mean.get("count").asLong()))
            .to(OUTPUT, Produced.with(TEXT, JSON));
    }

    private void q20() {
        write(bidsWithAuctions((bid, auction) -> {
            final ObjectNode row = copy(bid);
            row.set("category", auction.get("category"));
            return row.set("item_name", auction.get("item_name"));
        }).filter((key, bid) -> bid.get("category").asInt() == 10));
    }

    private void q8() {
        final KStream<String, JsonNode> events = events();
        final TimeWindows windows = TimeWindows.ofSizeAndGrace(WINDOW, GRACE);
        final KTable<Windowed<String>, JsonNode> names = people(events).mapValues(person -> person.get("name"))
            .groupByKey(grouped()).windowedBy(windows).reduce((before, name) -> name, stored());
        final KTable<Windowed<String>, JsonNode> sellers = auctions(events)
            .map((id, auction) -> KeyValue.pair(auction.get("seller").asText(), auction.get("seller")))
            .groupByKey(grouped()).windowedBy(windows).reduce((before, seller) -> seller, stored());
        final KTable<Windowed<String>, JsonNode> rows = names.join(sellers, (name, seller) -> {
            final ObjectNode row = NODES.objectNode();
            row.set("id", seller);
            row.set("name", name);
            return row;
        });
        write(rows.toStream((windowed, row) -> windowKey(windowed)));
    }

    // Windows.

    private void q5() {
        final TimeWindows windows = TimeWindows.ofSizeAndGrace(WINDOW, GRACE).advanceBy(HOP);
        final KStream<String, JsonNode> pairs = bidsByAuction(events())
            .groupByKey(grouped()).windowedBy(windows).count(Materialized.with(TEXT, Serdes.Long()))
            .toStream()
            .map((windowed, bids) -> KeyValue.pair(
                Long.toString(windowed.window().start()),
                NODES.objectNode().put("auction", windowed.key()).put("bids", bids)));
        write(pairs.groupByKey(grouped()).aggregate(() -> null, (start, pair, best) -> moreBids(best, pair), stored())
            .toStream());
    }

    private static JsonNode moreBids(final JsonNode best, final JsonNode pair) {
        final String auction = pair.get("auction").asText();
        final long bids = pair.get("bids").asLong();
        final TreeSet<String> auctions = new TreeSet<>();
        if (best != null && bids < best.get("bids").asLong()) {
            return best;
        }
        if (best != null && bids == best.get("bids").asLong()) {
            best.get("auctions").forEach(each -> auctions.add(each.asText()));
        }
        auctions.add(auction);
        final ObjectNode row = NODES.objectNode().put("bids", bids);
        auctions.forEach(row.putArray("auctions")::add);
        return row;
    }

    private void q7() {
        write(bids().groupBy((key, bid) -> "all", grouped())
            .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, GRACE))
            .aggregate(() -> null, (all, bid, best) -> highest(best, bid), stored())
            .toStream((windowed, best) -> windowKey(windowed)));
    }

    private static JsonNode highest(final JsonNode best, final JsonNode bid) {
        if (best != null && price(bid) < price(best)) {
            return best;
        }
        final List<JsonNode> rows = new ArrayList<>();
        if (best != null && price(bid) == price(best)) {
            best.get("bids").forEach(rows::add);
        }
        rows.add(NODES.arrayNode().add(bid.get("auction")).add(bid.get("bidder")).add(bid.get("date_time")));
        rows.sort(Comparator.comparingLong((JsonNode row) -> row.get(0).asLong())
            .thenComparingLong(row -> row.get(1).asLong()).thenComparingLong(row -> row.get(2).asLong()));
        final ObjectNode result = NODES.objectNode().put("price", price(bid));
        result.putArray("bids").addAll(rows);
        return result;
    }

    private void q11() {
        bids().groupBy((key, bid) -> bid.get("bidder").asText(), grouped())
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(WINDOW, GRACE))
            .count(Materialized.with(TEXT, Serdes.Long()))
            .toStream((windowed, bids) -> windowKey(windowed))
            .mapValues(bids -> bids == null ? null : (JsonNode) NODES.numberNode(bids))
            .to(OUTPUT, Produced.with(TEXT, JSON));
    }

    // Statistics.

    private static ObjectNode ranks(final JsonNode counts, final JsonNode bid) {
        final ObjectNode next = counts == null ? NODES.objectNode() : copy(counts);
        for (int rank = 0; rank <= 3; rank++) {
            final String name = rank == 0 ? "total_bids" : "rank" + rank + "_bids";
            final long more = rank == 0 || rank == rank(bid) ? 1 : 0;
            next.put(name, next.path(name).asLong() + more);
        }
        return next;
    }

    private static JsonNode changed(final JsonNode row, final JsonNode counts, final String name, final long sign) {
        final ObjectNode next = row == null ? NODES.objectNode() : copy(row);
        for (final String part : List.of("total_", "rank1_", "rank2_", "rank3_")) {
            final long bids = counts.get(part + "bids").asLong();
            next.put(part + "bids", next.path(part + "bids").asLong() + sign * bids);
            next.put(part + name, next.path(part + name).asLong() + (bids > 0 ? sign : 0));
        }
        return next;
    }

    private static KTable<String, JsonNode> statistics(
        final KStream<String, JsonNode> bids, final Function<JsonNode, String> group, final String counted,
        final String name) {
        return bids.groupBy((key, bid) -> group.apply(bid) + "/" + bid.get(counted).asText(), grouped())
            .aggregate(() -> null, (pair, bid, counts) -> ranks(counts, bid), stored())
            .groupBy((pair, counts) -> KeyValue.pair(pair.substring(0, pair.lastIndexOf('/')), counts), grouped())
            .aggregate(
                () -> null,
                (key, counts, row) -> changed(row, counts, name, 1),
                (key, counts, row) -> changed(row, counts, name, -1),
                stored());
    }

    private void both(final Function<JsonNode, String> group) {
        final KStream<String, JsonNode> bids = bids();
        final KTable<String, JsonNode> bidders = statistics(bids, group, "bidder", "bidders");
        final KTable<String, JsonNode> auctions = statistics(bids, group, "auction", "auctions");
        final KTable<String, JsonNode> rows = bidders.join(auctions, (one, other) -> {
            final ObjectNode row = copy(one);
            row.setAll((ObjectNode) other);
            return row;
        }, stored());
        write(rows.toStream());
    }

    private void q17() {
        bids().groupBy((key, bid) -> bid.get("auction").asText() + "/" + day(bid), grouped())
            .aggregate(() -> null, (key, bid, row) -> {
                final ObjectNode next = NODES.objectNode();
                final ObjectNode counts = ranks(row == null ? null : row.get("counts"), bid);
                next.set("counts", counts);
                next.put("min_price", row == null ? price(bid) : Math.min(price(bid), row.get("min_price").asLong()));
                next.put("max_price", row == null ? price(bid) : Math.max(price(bid), row.get("max_price").asLong()));
                final long sum = price(bid) + (row == null ? 0 : row.get("sum_price").asLong());
                next.put("sum_price", sum);
                next.put("avg_price", (double) sum / counts.get("total_bids").asLong());
                return (JsonNode) next;
            }, stored())
            .toStream()
            .to(OUTPUT, Produced.with(TEXT, JSON));
    }

    private void q18() {
        write(bids().groupBy((key, bid) -> bid.get("bidder").asText() + "/" + bid.get("auction").asText(), grouped())
            .reduce((one, other) -> {
                final Comparator<JsonNode> order =
                    Comparator.comparingLong((JsonNode bid) -> time(bid)).thenComparingLong(bid -> price(bid));
                return order.compare(one, other) >= 0 ? one : other;
            }, stored())
            .toStream());
    }

    private void q19() {
        write(bidsByAuction(events()).groupByKey(grouped())
            .aggregate(() -> null, (key, bid, best) -> {
                final List<JsonNode> rows = new ArrayList<>();
                if (best != null) {
                    best.forEach(rows::add);
                }
                rows.add(bid);
                rows.sort(Comparator.comparingLong((JsonNode row) -> -price(row)).thenComparingLong(row -> time(row)));
                final ArrayNode next = NODES.arrayNode();
                rows.stream().limit(10).forEach(next::add);
                return (JsonNode) next;
            }, stored())
            .toStream());
    }
}
