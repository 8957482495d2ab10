import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A push consumer that notes what it gets and fails as often as it is told. */
final class Push implements ClientProgram.Client {
    private final DefaultMQPushConsumer consumer;
    private final String name;
    private final String group;
    private final long failures;
    private final int delayLevel;
    private final long suspendMs;
    private final String replier;

    Push(Fields fields) throws Exception {
        name = fields.text("client");
        group = fields.text("group");
        failures = fields.number("failures", 0);
        delayLevel = (int) fields.number("delay_level", 0);
        suspendMs = fields.number("suspend_ms", 10);
        replier = fields.text("replier", null);
        consumer = new DefaultMQPushConsumer(group);
        fields.configure(consumer);
        consumer.setAllocateMessageQueueStrategy(Events.observed(name, fields.text("strategy", "AVG")));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + fields.text("from", "FIRST_OFFSET")));
        if (fields.has("timestamp")) {
            consumer.setConsumeTimestamp(fields.text("timestamp"));
        }
        if (fields.flag("broadcasting")) {
            consumer.setMessageModel(named(consumer.getMessageModel(), "BROADCASTING"));
        }
        consumer.setAwaitTerminationMillisWhenShutdown(10_000);  // so that what the listener got is settled and stored
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.setConsumeMessageBatchMaxSize((int) fields.number("batch", 1));
        consumer.setMaxReconsumeTimes((int) fields.number("tries_max", -1));
        listen(fields.flag("ordered"));
        for (Map.Entry<String, String> topic : fields.texts("tags").entrySet()) {
            consumer.subscribe(topic.getKey(), topic.getValue());
        }
        for (Map.Entry<String, String> topic : fields.texts("sql").entrySet()) {
            consumer.subscribe(topic.getKey(), MessageSelector.bySql(topic.getValue()));
        }
        try {
            consumer.start();
        } catch (Exception failure) {
            consumer.shutdown();
            throw failure;
        }
    }

    /** The constant of the sample's type, whose package is not the same in 4.9 and 5.x. */
    private static <E extends Enum<E>> E named(E sample, String constant) {
        return Enum.valueOf(sample.getDeclaringClass(), constant);
    }

    private void listen(boolean ordered) {
        if (ordered) {
            consumer.setMessageListener((MessageListenerOrderly) (messages, context) -> {
                boolean good = take(messages, context.getMessageQueue());
                context.setSuspendCurrentQueueTimeMillis(suspendMs);
                return good ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            });
        } else {
            consumer.setMessageListener((MessageListenerConcurrently) (messages, context) -> {
                boolean good = take(messages, context.getMessageQueue());
                context.setDelayLevelWhenNextConsume(delayLevel);
                return good ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
    }

    private boolean take(List<MessageExt> messages, MessageQueue queue) {
        boolean good = true;
        for (MessageExt message : messages) {
            Map<String, Object> details = Events.message(message);
            details.put("from", Events.queue(queue));
            details.put("batch", messages.size());
            Events.add(name, "message", details);
            good &= message.getReconsumeTimes() >= failures;
            if (replier != null) {
                reply(message);
            }
        }
        return good;
    }

    private void reply(MessageExt message) {
        try {
            Producer producer = (Producer) ClientProgram.client(replier);
            producer.producer.send(MessageUtil.createReplyMessage(message, message.getBody()), 10_000);
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        }
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
            case "subscribe":
                consumer.subscribe(fields.text("topic"), fields.text("expression", "*"));
                return null;
            case "unsubscribe":
                consumer.unsubscribe(fields.text("topic"));
                return null;
            case "holds":
                return Events.queues(new ArrayList<>(consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl()
                    .getProcessQueueTable().keySet()));
            case "rebalance":
                consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().rebalanceImmediately();
                return null;
            case "suspend":
                consumer.suspend();
                return null;
            case "resume":
                consumer.resume();
                return null;
            default:
                throw new IllegalArgumentException("a push consumer cannot " + what);
        }
    }
}
