import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends messages to queue 0 of topics: Send NAMESERVER BROKER COUNT LENGTH BATCH, and then for each
 * topic its name and the compression of its bodies, or NONE. BATCH messages go in one request. The
 * client compresses only single messages.
 */
public class Send {
    public static void main(String[] args) {
        try {
            for (int i = 5; i < args.length; i += 2) {
                send(args, args[i], args[i + 1]);
            }
            System.exit(0);
        } catch (Throwable e) { // exit here, because the client's threads would keep the process alive
            e.printStackTrace();
            System.exit(1);
        }
    }

    private static void send(String[] args, String topic, String compression) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java-" + compression);
        producer.setNamesrvAddr(args[0]);
        producer.setInstanceName(topic);
        if (compression.equals("NONE")) {
            producer.setCompressMsgBodyOverHowmuch(1 << 30);
        } else {
            producer.setCompressMsgBodyOverHowmuch(100);
            producer.setCompressType(CompressionType.of(compression));
        }
        producer.setSendMsgTimeout(60000); // long enough for a busy machine
        producer.setMqClientApiTimeout(60000);
        producer.setRetryTimesWhenSendFailed(0); // no retry, because a message that is sent twice is read twice
        producer.start();
        MessageQueue queue = new MessageQueue(topic, args[1], 0);
        int count = Integer.parseInt(args[2]);
        int length = Integer.parseInt(args[3]);
        int batch = Integer.parseInt(args[4]);
        List<Message> several = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message message = message(topic, compression, i, length);
            if (batch == 1) {
                producer.send(message, queue);
                continue;
            }
            several.add(message);
            if (several.size() == batch || i == count - 1) {
                producer.send(several, queue);
                several.clear();
            }
        }
        producer.shutdown();
    }

    private static Message message(String topic, String compression, int number, int length) {
        String one = "java " + compression + " " + number + " ";
        byte[] body = one.repeat((length + one.length() - 1) / one.length()).getBytes(StandardCharsets.UTF_8);
        Message message = new Message(topic, "tag-" + number % 3, "key-" + number, body);
        message.putUserProperty("number", Integer.toString(number));
        return message;
    }
}
