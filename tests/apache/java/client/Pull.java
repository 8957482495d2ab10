import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullCallback;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The old pull consumer: every step by hand. */
@SuppressWarnings("deprecation")
final class Pull implements ClientProgram.Client {
    private final DefaultMQPullConsumer consumer;
    private final String name;

    Pull(Fields fields) throws Exception {
        name = fields.text("client");
        consumer = new DefaultMQPullConsumer(fields.text("group"));
        fields.configure(consumer);
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
            case "queues":
                return Events.queues(consumer.fetchSubscribeMessageQueues(fields.text("topic")));
            case "read":
                return Events.messages(read(fields.text("topic")));
            case "pull":
                return result(pull(fields));
            case "wait":
                waitFor(fields);
                return null;
            case "commit":
                consumer.updateConsumeOffset(fields.queue("queue"), fields.number("offset", 0));
                consumer.getOffsetStore().updateConsumeOffsetToBroker(
                    fields.queue("queue"), fields.number("offset", 0), false);
                return null;
            case "committed":
                return consumer.fetchConsumeOffset(fields.queue("queue"), true);
            case "send_back":
                PullResult found = pull(fields);
                consumer.sendMessageBack(found.getMsgFoundList().get(0), (int) fields.number("delay_level", 0));
                return null;
            default:
                throw new IllegalArgumentException("a pull consumer cannot " + what);
        }
    }

    private PullResult pull(Fields fields) throws Exception {
        MessageQueue queue = fields.queue("queue");
        long offset = fields.number("offset", 0);
        int most = (int) fields.number("most", 32);
        if (fields.has("sql")) {
            return consumer.pull(queue, MessageSelector.bySql(fields.text("sql")), offset, most);
        }
        return consumer.pull(queue, fields.text("tags", "*"), offset, most);
    }

    private void waitFor(Fields fields) throws Exception {
        consumer.pullBlockIfNotFound(fields.queue("queue"), fields.text("tags", "*"), fields.number("offset", 0), 32,
            new PullCallback() {
                @Override
                public void onSuccess(PullResult found) {
                    Events.add(name, "pulled", result(found));
                }

                @Override
                public void onException(Throwable failure) {
                    Map<String, Object> details = new LinkedHashMap<>();
                    details.put("why", String.valueOf(failure));
                    Events.add(name, "failed", details);
                }
            });
    }

    /** Everything that a topic holds now, queue by queue. */
    private List<MessageExt> read(String topic) throws Exception {
        List<MessageExt> all = new ArrayList<>();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            long end = consumer.maxOffset(queue);
            for (long next = Math.max(0, consumer.minOffset(queue)); next < end; ) {
                PullResult found = consumer.pull(queue, "*", next, 32);
                if (found.getPullStatus() != PullStatus.FOUND) {
                    throw new IllegalStateException(queue + " ends at " + end + " but at " + next + ": " + found);
                }
                all.addAll(found.getMsgFoundList());
                next = found.getNextBeginOffset();
            }
        }
        return all;
    }

    private static Map<String, Object> result(PullResult found) {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("status", found.getPullStatus().name());
        map.put("next", found.getNextBeginOffset());
        map.put("first", found.getMinOffset());
        map.put("end", found.getMaxOffset());
        map.put("messages", Events.messages(found.getMsgFoundList()));
        return map;
    }
}
