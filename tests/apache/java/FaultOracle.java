import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.common.ThreadLocalIndex;
import org.apache.rocketmq.client.impl.producer.TopicPublishInfo;
import org.apache.rocketmq.client.latency.MQFaultStrategy;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.route.QueueData;
import org.apache.rocketmq.common.protocol.route.TopicRouteData;

/** The stock fault strategy on scripted histories: one answer line for each line, a history each. */
public class FaultOracle {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(play(line.split(" ")));
        }
        System.exit(0);
    }

    /** Words: brokers, queues of each, counter, pick counter; then s[:last], u:broker:latency:failed, a:milliseconds. */
    static String play(String[] words) throws Exception {
        int brokers = Integer.parseInt(words[0]);
        int queues = Integer.parseInt(words[1]);
        TopicPublishInfo info = info(brokers, queues);
        MQFaultStrategy strategy = new MQFaultStrategy();
        strategy.setSendLatencyFaultEnable(true);
        Object tolerance = field(MQFaultStrategy.class, "latencyFaultTolerance").get(strategy);
        start(info.getSendWhichQueue(), Integer.parseInt(words[2]));
        start((ThreadLocalIndex) field(tolerance.getClass(), "whichItemWorst").get(tolerance), Integer.parseInt(words[3]));
        StringBuilder out = new StringBuilder();
        for (int i = 4; i < words.length; i++) {
            String[] parts = words[i].split(":");
            switch (parts[0]) {
                case "s" -> {
                    MessageQueue queue = strategy.selectOneMessageQueue(info, parts.length > 1 ? parts[1] : null);
                    out.append(queue.getBrokerName()).append('/').append(queue.getQueueId()).append(' ');
                }
                case "u" -> strategy.updateFaultItem(parts[1], Long.parseLong(parts[2]), parts[3].equals("1"));
                case "a" -> advance(tolerance, Long.parseLong(parts[1]));
                default -> throw new IllegalArgumentException(words[i]);
            }
        }
        for (MessageQueue queue : info.getMessageQueueList()) {
            out.append(queue.getBrokerName()).append(',');
        }
        return out.toString();
    }

    static TopicPublishInfo info(int brokers, int queues) {
        List<MessageQueue> list = new ArrayList<>();
        TopicRouteData route = new TopicRouteData();
        route.setQueueDatas(new ArrayList<>());
        for (int broker = 0; broker < brokers; broker++) {
            QueueData data = new QueueData();
            data.setBrokerName("b" + broker);
            data.setWriteQueueNums(queues);
            route.getQueueDatas().add(data);
            for (int queue = 0; queue < queues; queue++) {
                list.add(new MessageQueue("T", "b" + broker, queue));
            }
        }
        TopicPublishInfo info = new TopicPublishInfo();
        info.setMessageQueueList(list);
        info.setTopicRouteData(route);
        return info;
    }

    @SuppressWarnings("unchecked")
    static void start(ThreadLocalIndex index, int value) throws Exception {
        ((ThreadLocal<Integer>) field(ThreadLocalIndex.class, "threadLocalIndex").get(index)).set(value);
    }

    /** Time goes by: everything that lies ahead comes nearer. */
    static void advance(Object tolerance, long milliseconds) throws Exception {
        Map<?, ?> table = (Map<?, ?>) field(tolerance.getClass(), "faultItemTable").get(tolerance);
        for (Object item : table.values()) {
            Field start = field(item.getClass(), "startTimestamp");
            start.set(item, (long) start.get(item) - milliseconds);
        }
    }

    static Field field(Class<?> type, String name) throws Exception {
        Field field = type.getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }
}
