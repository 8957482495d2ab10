import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

/** A lite pull consumer. It commits when it is told. */
final class Lite implements ClientProgram.Client {
    private final DefaultLitePullConsumer consumer;

    Lite(Fields fields) throws Exception {
        consumer = new DefaultLitePullConsumer(fields.text("group"));
        fields.configure(consumer);
        consumer.setAllocateMessageQueueStrategy(Events.observed(fields.text("client")));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + fields.text("from", "FIRST_OFFSET")));
        consumer.setAutoCommit(false);
        consumer.setPullThreadNums(4);
        for (Map.Entry<String, String> topic : fields.texts("tags").entrySet()) {
            consumer.subscribe(topic.getKey(), topic.getValue());
        }
        for (Map.Entry<String, String> topic : fields.texts("sql").entrySet()) {
            consumer.subscribe(topic.getKey(), MessageSelector.bySql(topic.getValue()));
        }
        consumer.start();
    }

    @Override
    public String id() {
        return consumer.buildMQClientId();
    }

    @Override
    public void shutdown() {
        consumer.shutdown();
    }

    @Override
    public Object act(String what, Fields fields) throws Exception {
        switch (what) {
            case "poll":
                return Events.messages(consumer.poll(fields.number("timeout_ms", 200)));
            case "queues":
                return Events.queues(consumer.fetchMessageQueues(fields.text("topic")));
            case "assign":
                consumer.assign(queues(fields));
                return null;
            case "seek":
                consumer.seek(fields.queue("queue"), fields.number("offset", 0));
                return null;
            case "seek_begin":
                consumer.seekToBegin(fields.queue("queue"));
                return null;
            case "seek_end":
                consumer.seekToEnd(fields.queue("queue"));
                return null;
            case "pause":
                consumer.pause(queues(fields));
                return null;
            case "resume":
                consumer.resume(queues(fields));
                return null;
            case "commit":
                consumer.commitSync();
                return null;
            case "committed":
                return consumer.committed(fields.queue("queue"));
            case "offset_at":
                return consumer.offsetForTimestamp(fields.queue("queue"), fields.number("at_ms", 0));
            default:
                throw new IllegalArgumentException("a lite pull consumer cannot " + what);
        }
    }

    private static List<MessageQueue> queues(Fields fields) {
        List<MessageQueue> queues = new ArrayList<>();
        fields.list("queues").forEach(each -> queues.add(each.queue()));
        return queues;
    }
}
