import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads whole topics with the official client: Receive NAMESERVER FILE COUNT TOPIC... The topics have
 * COUNT messages together. It writes the topic, queue, offset, tags, keys and body of each to FILE.
 */
public class Receive {
    public static void main(String[] args) {
        try {
            receive(args);
            System.exit(0);
        } catch (Throwable e) { // exit here, because the client's threads would keep the process alive
            e.printStackTrace();
            System.exit(1);
        }
    }

    private static void receive(String[] args) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("java-receives");
        consumer.setNamesrvAddr(args[0]);
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(1000);
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>();
        for (int i = 3; i < args.length; i++) {
            queues.addAll(consumer.fetchMessageQueues(args[i]));
        }
        consumer.assign(queues);
        for (MessageQueue queue : queues) {
            consumer.seekToBegin(queue);
        }
        int left = Integer.parseInt(args[2]);
        try (DataOutputStream out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(args[1])))) {
            while (left > 0) {
                for (MessageExt m : consumer.poll(1000)) {
                    text(out, m.getTopic());
                    out.writeInt(m.getQueueId());
                    out.writeLong(m.getQueueOffset());
                    text(out, m.getTags());
                    text(out, m.getKeys());
                    bytes(out, m.getBody());
                    left--;
                }
            }
        }
        consumer.shutdown();
    }

    private static void text(DataOutputStream out, String text) throws Exception {
        bytes(out, text == null ? new byte[0] : text.getBytes(StandardCharsets.UTF_8));
    }

    private static void bytes(DataOutputStream out, byte[] bytes) throws Exception {
        out.writeInt(bytes.length);
        out.write(bytes);
    }
}
