import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * A stock client with a key. It does what it is told, a line at a time, and says "OK ..." or "ERR ...".
 *
 * <p>Arguments: name server, access key, secret key ("-" for none). Lines: "send topic body", "pull topic group",
 * "listen topic group count".
 */
public class AccessClient {
    private static String nameserver;
    private static RPCHook hook;
    private static int instances;

    public static void main(String[] args) throws Exception {
        nameserver = args[0];
        hook = args[1].equals("-") ? null : new AclClientRPCHook(new SessionCredentials(args[1], args[2]));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(line.split(" ")));
            System.out.flush();
        }
        System.exit(0);
    }

    private static String answer(String[] words) {
        try {
            switch (words[0]) {
                case "send":
                    return "OK " + send(words[1], words[2]);
                case "pull":
                    return "OK " + pull(words[1], words[2]);
                case "listen":
                    return "OK " + listen(words[1], words[2], Integer.parseInt(words[3]));
                default:
                    return "ERR unknown word";
            }
        } catch (Throwable failure) {
            StringBuilder text = new StringBuilder("ERR");
            for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
                text.append(' ').append(cause);
            }
            return text.toString().replace('\n', ' ').replace('\r', ' ');
        }
    }

    private static String name() {
        return "access-" + ProcessHandle.current().pid() + "-" + instances++;
    }

    private static String send(String topic, String body) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("access-producers", hook);
        producer.setNamesrvAddr(nameserver);
        producer.setInstanceName(name());
        producer.setVipChannelEnabled(false);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        try {
            return String.valueOf(producer.send(new Message(topic, body.getBytes(StandardCharsets.UTF_8))).getSendStatus());
        } finally {
            producer.shutdown();
        }
    }

    private static String pull(String topic, String group) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group, hook);
        consumer.setNamesrvAddr(nameserver);
        consumer.setInstanceName(name());
        consumer.setVipChannelEnabled(false);
        consumer.start();
        try {
            int found = 0;
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
                PullResult result = consumer.pull(queue, "*", 0, 32, 20_000);
                found += result.getMsgFoundList() == null ? 0 : result.getMsgFoundList().size();
            }
            return String.valueOf(found);
        } finally {
            consumer.shutdown();
        }
    }

    private static String listen(String topic, String group, int count) throws Exception {
        CountDownLatch heard = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameserver);
        consumer.setInstanceName(name());
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(
            (MessageListenerConcurrently)
                (messages, context) -> {
                    messages.forEach(message -> heard.countDown());
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                });
        consumer.start();
        try {
            return String.valueOf(heard.await(60, TimeUnit.SECONDS));
        } finally {
            consumer.shutdown();
        }
    }
}
