import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends in every way there is, and asks what a producer may ask. */
final class Producer implements ClientProgram.Client {
    private static final long TIMEOUT_MS = 30_000;

    final DefaultMQProducer producer;

    Producer(Fields fields) throws Exception {
        String group = fields.text("group");
        if (fields.flag("transactional")) {
            TransactionMQProducer transactional = new TransactionMQProducer(group);
            transactional.setTransactionListener(new Planned(fields.text("client")));
            producer = transactional;
        } else {
            producer = new DefaultMQProducer(group, null, fields.flag("traced"), null);
        }
        fields.configure(producer);
        producer.setSendMsgTimeout((int) TIMEOUT_MS);
        producer.setMaxMessageSize((int) fields.number("bytes_max", producer.getMaxMessageSize()));
        producer.setDefaultTopicQueueNums((int) fields.number("queues", producer.getDefaultTopicQueueNums()));
        producer.start();
    }

    @Override
    public String id() {
        return producer.buildMQClientId();
    }

    @Override
    public void shutdown() {
        producer.shutdown();
    }

    @Override
    public Object act(String what, Fields fields) throws Exception {
        switch (what) {
            case "send":
                return receipt(send(fields));
            case "oneway":
                if (fields.has("queue")) {
                    producer.sendOneway(message(fields), fields.queue("queue"));
                } else {
                    producer.sendOneway(message(fields));
                }
                return null;
            case "batch":
                List<Message> batch = new ArrayList<>();
                for (Fields each : fields.list("messages")) {
                    batch.add(message(each));
                }
                return receipt(fields.has("queue") ? producer.send(batch, fields.queue("queue")) : producer.send(batch));
            case "transaction":
                return receipt(producer.sendMessageInTransaction(message(fields), null));
            case "request":
                return reply(producer.request(message(fields), fields.number("timeout_ms", TIMEOUT_MS)));
            case "queues":
                return Events.queues(producer.fetchPublishMessageQueues(fields.text("topic")));
            case "view":
                return Events.message(producer.viewMessage(fields.text("topic"), fields.text("id")));
            case "query":
                return Events.messages(producer.queryMessage(fields.text("topic"), fields.text("key"), 32,
                    0, System.currentTimeMillis() + 60_000).getMessageList());
            case "bounds":
                return bounds(fields.queue("queue"), fields.number("at_ms", 0));
            default:
                throw new IllegalArgumentException("a producer cannot " + what);
        }
    }

    private SendResult send(Fields fields) throws Exception {
        Message message = message(fields);
        if (fields.flag("async")) {
            CompletableFuture<SendResult> answer = new CompletableFuture<>();
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answer.complete(result);
                }

                @Override
                public void onException(Throwable failure) {
                    answer.completeExceptionally(failure);
                }
            });
            return answer.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        }
        if (fields.has("queue")) {
            return producer.send(message, fields.queue("queue"));
        }
        if (fields.has("shard")) {
            return producer.send(message, new SelectMessageQueueByHash(), fields.text("shard"));
        }
        return producer.send(message);
    }

    static Message message(Fields fields) {
        Message message = new Message(fields.text("topic"), body(fields));
        if (fields.has("tag")) {
            message.setTags(fields.text("tag"));
        }
        if (fields.has("key")) {
            message.setKeys(fields.text("key"));
        }
        message.setFlag((int) fields.number("flag", 0));
        fields.texts("properties").forEach(message::putUserProperty);
        if (fields.has("delay_level")) {
            message.setDelayTimeLevel((int) fields.number("delay_level", 0));
        }
        if (fields.has("deliver_ms")) {  // 4.9 has no setter for it
            MessageAccessor.putProperty(message, "TIMER_DELIVER_MS", fields.text("deliver_ms"));
        }
        return message;
    }

    /** `noise_bytes`: as many bytes that no compression makes smaller. */
    private static byte[] body(Fields fields) {
        if (!fields.has("noise_bytes")) {
            return fields.bytes("body");
        }
        byte[] noise = new byte[(int) fields.number("noise_bytes", 0)];
        new Random(1).nextBytes(noise);
        return noise;
    }

    private static Map<String, Object> receipt(SendResult result) {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("status", result.getSendStatus().name());
        map.put("id", result.getMsgId());
        map.put("offset_id", result.getOffsetMsgId());
        map.put("broker", result.getMessageQueue().getBrokerName());
        map.put("queue_id", result.getMessageQueue().getQueueId());
        map.put("offset", result.getQueueOffset());
        map.put("transaction_id", result.getTransactionId());
        map.put("region", result.getRegionId());
        if (result instanceof TransactionSendResult) {
            map.put("state", ((TransactionSendResult) result).getLocalTransactionState().name());
        }
        return map;
    }

    private static Map<String, Object> reply(Message reply) {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("body", Base64.getEncoder().encodeToString(reply.getBody()));
        map.put("properties", new LinkedHashMap<>(reply.getProperties()));
        return map;
    }

    private Map<String, Object> bounds(MessageQueue queue, long atMs) throws Exception {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("first", producer.minOffset(queue));
        map.put("end", producer.maxOffset(queue));
        map.put("at", producer.searchOffset(queue, atMs));
        map.put("earliest_ms", producer.earliestMsgStoreTime(queue));
        return map;
    }

    /** A message says itself how its transaction ends, and what is said when the broker asks. */
    private static final class Planned implements TransactionListener {
        private final String client;

        Planned(String client) {
            this.client = client;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            note("executed", message.getTransactionId(), message);
            return LocalTransactionState.valueOf(message.getUserProperty("plan"));
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            note("checked", message.getTransactionId(), message);
            return LocalTransactionState.valueOf(message.getUserProperty("when_asked"));
        }

        private void note(String kind, String transaction, Message message) {
            Map<String, Object> details = new LinkedHashMap<>();
            details.put("transaction_id", transaction);
            details.put("topic", message.getTopic());
            details.put("properties", new LinkedHashMap<>(message.getProperties()));
            Events.add(client, kind, details);
        }
    }
}
