import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/**
 * Sends messages in one of four ways:
 *
 * <ul>
 *   <li>Send many SERVICE TOPIC COUNT: COUNT messages with each compression, in batches by time, in
 *       batches by key, and without batches.
 *   <li>Send transactions SERVICE TOPIC COUNT: COUNT rounds of two committed messages, two aborted ones
 *       and a plain one, in changing order.
 *   <li>Send keys SERVICE TOPIC COUNT: COUNT times a message with a key of bytes, one with a key of
 *       text, one without a key, and one with a key and a value that each have a schema.
 *   <li>Send open SERVICE TOPIC COUNT: a plain message, COUNT messages of a transaction, and a plain
 *       one. It prints "open", and then commits or aborts as it is told on stdin.
 * </ul>
 */
public class Send {
    public static void main(String[] args) {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(args[1]).operationTimeout(2, TimeUnit.MINUTES)
                .enableTransaction(args[0].equals("open") || args[0].equals("transactions")).build()) {
            int count = Integer.parseInt(args[3]);
            if (args[0].equals("many")) {
                many(client, args[2], count);
            } else if (args[0].equals("keys")) {
                keys(client, args[2], count);
            } else if (args[0].equals("open")) {
                open(client, args[2], count);
            } else {
                transactions(client, args[2], count);
            }
        } catch (Throwable e) { // exit here, because the client's threads would keep the process alive
            e.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    private static ProducerBuilder<byte[]> producer(PulsarClient client, String topic) {
        return client.newProducer().topic(topic).sendTimeout(0, TimeUnit.SECONDS).blockIfQueueFull(true);
    }

    private static void many(PulsarClient client, String topic, int count) throws Exception {
        CompressionType[] codecs = CompressionType.values();
        int parts = 2 * codecs.length;
        Random random = new Random(1);
        for (int part = 0; part < parts; part++) {
            ProducerBuilder<byte[]> b = producer(client, topic).compressionType(codecs[part % codecs.length]);
            if (part % 5 == 4) {
                b.batcherBuilder(BatcherBuilder.KEY_BASED);
            }
            try (Producer<byte[]> p = b.batchingMaxMessages(1 + random.nextInt(1500)).create()) {
                CompletableFuture<?> last = null;
                for (int i = part; i < count; i += parts) {
                    TypedMessageBuilder<byte[]> m = p.newMessage().key("java-" + i % 97)
                            .value(("java " + i + " " + "abcdefgh".repeat(i % 20)).getBytes(StandardCharsets.UTF_8));
                    if (i % 3 == 0) {
                        m.property("n", Integer.toString(i)).eventTime(1_700_000_000_000L + i);
                    }
                    last = m.sendAsync();
                }
                p.flush();
                last.get();
            }
        }
    }

    private static void keys(PulsarClient client, String topic, int count) throws Exception {
        Schema<KeyValue<String, String>> both = Schema.KeyValue(Schema.STRING, Schema.STRING, KeyValueEncodingType.SEPARATED);
        for (boolean batches : new boolean[] {false, true}) {
            try (Producer<byte[]> p = producer(client, topic).enableBatching(batches).create()) {
                for (int i = 0; i < count; i++) {
                    p.newMessage().keyBytes(new byte[] {0, -1, 'k'}).value("bytes".getBytes()).sendAsync();
                    p.newMessage().key("AP9r").value("text".getBytes()).sendAsync();
                    p.newMessage().value("none".getBytes()).sendAsync();
                }
                p.flush();
            }
            try (Producer<KeyValue<String, String>> p = client.newProducer(both).topic(topic + "-pairs").enableBatching(batches).create()) {
                p.send(new KeyValue<>("a key", "a value"));
            }
        }
    }

    private static void open(PulsarClient client, String topic, int count) throws Exception {
        try (Producer<byte[]> p = producer(client, topic).enableBatching(false).create()) {
            Transaction held = client.newTransaction().withTransactionTimeout(60, TimeUnit.MINUTES).build().get();
            p.newMessage().value("before".getBytes()).send();
            for (int k = 0; k < count; k++) {
                p.newMessage(held).value(("held " + k).getBytes()).send();
            }
            p.newMessage().value("after".getBytes()).send();
            System.out.println("open");
            switch (String.valueOf(new BufferedReader(new InputStreamReader(System.in)).readLine())) {
                case "commit" -> held.commit().get();
                default -> held.abort().get();
            }
        }
    }

    private static void transactions(PulsarClient client, String topic, int count) throws Exception {
        try (Producer<byte[]> p = producer(client, topic).enableBatching(false).create()) {
            for (int i = 0; i < count; i++) {
                Transaction kept = client.newTransaction().withTransactionTimeout(5, TimeUnit.MINUTES).build().get();
                Transaction dropped = client.newTransaction().withTransactionTimeout(5, TimeUnit.MINUTES).build().get();
                for (int k = 0; k < 2; k++) {
                    p.newMessage(kept).value(("kept " + i + " " + k).getBytes()).send();
                    p.newMessage(dropped).value(("dropped " + i + " " + k).getBytes()).send();
                }
                if (i % 2 == 0) {
                    dropped.abort().get();
                    kept.commit().get();
                } else {
                    kept.commit().get();
                    dropped.abort().get();
                }
                p.newMessage().value(("plain " + i).getBytes()).send();
            }
        }
    }
}
