import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Java client in the interop tests; how it is driven: tests/interop/program.rs. */
public final class Client {
    private static final int RECORDS_PER_STEP = 5;
    private static final long STEP_MS = 5;

    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "debug");
        String mode = arguments[0];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[1]);
        if (mode.equals("produce")) {
            produce(settings, arguments[2], Integer.parseInt(arguments[3]));
        } else {
            consume(settings, arguments[2]);
        }
    }

    private static void produce(Properties settings, String topic, int count) throws Exception {
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, text, text)) {
            for (int number = 0; number < count; number++) {
                String value = "value-" + number;
                producer.send(new ProducerRecord<>(topic, 0, null, value), (metadata, error) -> {
                    if (error != null) {
                        System.err.println("given up " + value + " " + error);
                    } else {
                        System.out.println("acked " + value + " " + metadata.offset());
                    }
                });
                if (number % RECORDS_PER_STEP == 0) {
                    Thread.sleep(STEP_MS);
                }
            }
        }
    }

    private static void consume(Properties settings, String topic) {
        StringDeserializer text = new StringDeserializer();
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, text, text)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            while (true) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println(record.offset() + " " + record.value());
                }
            }
        }
    }
}
