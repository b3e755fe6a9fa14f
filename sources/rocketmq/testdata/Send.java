import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends messages to queue 0 of a topic: Send NAMESERVER TOPIC BROKER COUNT LENGTH COMPRESSION. */
public class Send {
    public static void main(String[] args) {
        try {
            send(args);
            System.exit(0);
        } catch (Throwable e) { // the client's threads would keep the process alive
            e.printStackTrace();
            System.exit(1);
        }
    }

    private static void send(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java-" + args[5]);
        producer.setNamesrvAddr(args[0]);
        producer.setInstanceName(args[1]);
        producer.setCompressMsgBodyOverHowmuch(100);
        producer.setCompressType(CompressionType.of(args[5]));
        producer.setSendMsgTimeout(60000); // a busy machine is no failure
        producer.setMqClientApiTimeout(60000);
        producer.setRetryTimesWhenSendFailed(0); // a message that was sent twice would be read twice
        producer.start();
        MessageQueue queue = new MessageQueue(args[1], args[2], 0);
        int count = Integer.parseInt(args[3]);
        int length = Integer.parseInt(args[4]);
        for (int i = 0; i < count; i++) {
            StringBuilder text = new StringBuilder();
            while (text.length() < length) {
                text.append("java ").append(args[5]).append(' ').append(i).append(' ');
            }
            Message message = new Message(args[1], "tag-" + i % 3, "key-" + i, text.toString().getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("number", Integer.toString(i));
            producer.send(message, queue);
        }
        producer.shutdown();
    }
}
