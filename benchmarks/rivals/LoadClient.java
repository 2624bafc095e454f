import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Produces and consumes with Kafka's own clients. Reads one command per line and answers each with its records
 * per second: produce|consume, bootstrap servers, topic, partitions, records, bytes of a value, compression.
 */
public final class LoadClient {
    private static final Duration TIMEOUT = Duration.ofSeconds(30);

    public static void main(final String[] arguments) throws IOException {
        final BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            final String[] command = line.split(" ");
            final int partitions = Integer.parseInt(command[3]);
            final int records = Integer.parseInt(command[4]);
            final double rate = command[0].equals("produce")
                ? produce(command[1], command[2], partitions, records, Integer.parseInt(command[5]), command[6])
                : consume(command[1], command[2], partitions, records);
            System.out.println(rate);
        }
    }

    private static double produce(
        final String bootstrap, final String topic, final int partitions, final int records, final int valueBytes,
        final String compression
    ) {
        final Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("linger.ms", "5");
        config.put("batch.size", "500000");
        config.put("buffer.memory", "268435456");
        config.put("compression.type", compression);
        final byte[][] values = values(valueBytes);
        try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.partitionsFor(topic);
            final AtomicReference<Exception> failure = new AtomicReference<>();
            final long began = System.nanoTime();
            for (int number = 0; number < records; number++) {
                producer.send(
                    new ProducerRecord<>(topic, number % partitions, null, values[number % values.length]),
                    (sent, error) -> {
                        if (error != null) {
                            failure.compareAndSet(null, error);
                        }
                    }
                );
            }
            producer.flush();
            if (failure.get() != null) {
                throw new IllegalStateException("a record was not sent to " + bootstrap, failure.get());
            }
            return records * 1e9 / (System.nanoTime() - began);
        }
    }

    /** Words, which compress as text does. */
    private static byte[][] values(final int valueBytes) {
        final Random random = new Random(1);
        final String letters = "etaoinshrdlu ";
        final byte[][] values = new byte[1000][valueBytes];
        for (final byte[] value : values) {
            for (int at = 0; at < valueBytes; at++) {
                value[at] = (byte) letters.charAt(random.nextInt(letters.length()));
            }
        }
        return values;
    }

    private static double consume(final String bootstrap, final String topic, final int partitions, final int records) {
        final Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("max.poll.records", "10000");
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            final List<TopicPartition> assigned = new ArrayList<>();
            for (int partition = 0; partition < partitions; partition++) {
                assigned.add(new TopicPartition(topic, partition));
            }
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            final int first = consumer.poll(TIMEOUT).count();
            int count = first;
            final long began = System.nanoTime();
            while (count < records) {
                final int more = consumer.poll(TIMEOUT).count();
                if (more == 0) {
                    throw new IllegalStateException(count + " of " + records + " records came from " + bootstrap);
                }
                count += more;
            }
            return (records - first) * 1e9 / (System.nanoTime() - began);
        }
    }
}
