import java.io.IOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * The word count of the Kafka Streams documentation; runs until its standard input is closed.
 *
 * <p>After seven arguments come the program, "words" or "keys" (which counts the keys of its records), and settings as
 * "key=value".
 */
public final class WordCountBenchmark {
    public static void main(final String[] arguments) throws IOException {
        final Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[0]);
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[1]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[5]);
        config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, arguments[6]);
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");

        for (int i = 8; i < arguments.length; i++) {
            final String[] setting = arguments[i].split("=", 2);
            config.put(setting[0], setting[1]);
        }

        final StreamsBuilder builder = new StreamsBuilder();
        final KStream<String, String> lines = builder.stream(arguments[2]);
        final KGroupedStream<String, String> grouped = arguments.length > 7 && arguments[7].equals("keys")
            ? lines.groupByKey()
            : lines.flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split("\\s+")))
                .groupBy((key, word) -> word, Grouped.as("counts-store"));
        grouped.count(Materialized.as("counts-store"))
            .toStream()
            .to(arguments[3], Produced.valueSerde(Serdes.Long()));

        final KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.start();
        while (System.in.read() >= 0) {
            // wait for the end of standard input
        }
        streams.close(Duration.ofSeconds(20));
    }
}
