import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The stock push consumer under planned changes, as `trimtab bench rebalance` does them:
 * `nameserver topic group queues members changes rate handler-ms pause-ms`.
 *
 * Members leave by shutdown() and join in turn while messages flow, each with its number. Who holds which queue is looked up every few
 * milliseconds in the members' own tables. One line of JSON comes out.
 */
public final class RebalanceBench {
    private static final int LOOK_MS = 5;
    private static final long SETTLE_MS_MAX = 90_000;
    private static final long QUIET_MS = 2_000;
    private static final int THREADS = 64;

    private final String[] args;
    private final String topic;
    private final int queues;
    private final long handlerMs;
    private final Map<String, AtomicInteger> got = new ConcurrentHashMap<>();
    private final Map<String, AtomicInteger> places = new ConcurrentHashMap<>();
    private final AtomicLong delivered = new AtomicLong();
    private final List<DefaultMQPushConsumer> members = new CopyOnWriteArrayList<>();
    private final AtomicLong sent = new AtomicLong();
    private final AtomicLong errors = new AtomicLong();
    private volatile boolean isOver;
    private volatile boolean isCounting;
    private volatile boolean isSettled;
    private double doubleHeldMs;
    private double unheldMs;
    private long unheldMsMax;
    private final Map<MessageQueue, Object> lastMember = new HashMap<>();
    private final Map<MessageQueue, Long> lastDelivery = new HashMap<>();
    private long undeliveredNs;
    private long undeliveredNsMax;
    private long moved;
    private int joined;

    private RebalanceBench(String[] args) {
        this.args = args;
        topic = args[1];
        queues = Integer.parseInt(args[3]);
        handlerMs = Long.parseLong(args[7]);
    }

    public static void main(String[] args) throws Exception {
        new RebalanceBench(args).run();
        System.exit(0);
    }

    private void run() throws Exception {
        Thread looking = new Thread(this::look);
        looking.setDaemon(true);
        looking.start();
        for (int number = 0; number < Integer.parseInt(args[4]); number++) {
            join();
        }
        settledMs();
        isCounting = true;
        Thread sending = new Thread(this::send);
        sending.start();
        long pauseMs = Long.parseLong(args[8]);
        long convergeMs = 0;
        for (int number = 0; number < Integer.parseInt(args[5]); number++) {
            Thread.sleep(pauseMs);
            if (number % 2 == 0) {
                leave();
            } else {
                join();
            }
            convergeMs = Math.max(convergeMs, settledMs());
        }
        Thread.sleep(pauseMs);
        isOver = true;
        sending.join();
        waitForAll();
        isCounting = false;
        report(convergeMs);
        for (DefaultMQPushConsumer member : members) {
            member.shutdown();
        }
    }

    private void report(long convergeMs) {
        long twice = 0;
        for (AtomicInteger count : places.values()) {
            twice += count.get() - 1;
        }
        System.out.println(String.format(Locale.ROOT,
            "{\"sent\":%d,\"delivered\":%d,\"delivered_twice\":%d,\"lost\":%d,\"double_held_s\":%.3f,\"unheld_s\":%.3f,"
                + "\"unheld_ms_max\":%d,\"undelivered_s\":%.3f,\"undelivered_ms_max\":%d,\"moved\":%d,\"converge_ms_max\":%d,\"send_errors\":%d,\"mode\":\"java\"}",
            sent.get(), delivered.get(), twice, Math.max(0, sent.get() - got.size()), doubleHeldMs / 1e3, unheldMs / 1e3,
            unheldMsMax, undeliveredNs / 1e9, undeliveredNsMax / 1_000_000, moved, convergeMs, errors.get()));
    }

    private void join() throws Exception {
        DefaultMQPushConsumer member = new DefaultMQPushConsumer(args[2]);
        member.setNamesrvAddr(args[0]);
        member.setInstanceName("member-" + ++joined);
        member.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        member.setConsumeThreadMin(THREADS);
        member.setConsumeThreadMax(THREADS);
        member.subscribe(topic, "*");
        member.registerMessageListener((MessageListenerConcurrently) (received, context) -> {
            noteDelivery(member, context.getMessageQueue());
            for (MessageExt message : received) {
                delivered.incrementAndGet();
                got.computeIfAbsent(new String(message.getBody()), key -> new AtomicInteger()).incrementAndGet();
                // A send that is tried again may store one message twice, and that is not delivered twice.
                String place = context.getMessageQueue() + " " + message.getQueueOffset();
                places.computeIfAbsent(place, key -> new AtomicInteger()).incrementAndGet();
            }
            try {
                Thread.sleep(handlerMs);
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        member.start();
        members.add(member);
    }

    /** How long nobody got messages of a queue while it went from one member to another. */
    private synchronized void noteDelivery(Object member, MessageQueue queue) {
        if (!isCounting || !queue.getTopic().equals(topic)) {
            return;
        }
        long now = System.nanoTime();
        Object former = lastMember.put(queue, member);
        Long at = lastDelivery.put(queue, now);
        if (former != null && former != member) {
            undeliveredNs += now - at;
            undeliveredNsMax = Math.max(undeliveredNsMax, now - at);
        }
    }

    private void leave() {
        DefaultMQPushConsumer member = members.get(0);
        member.shutdown();
        members.remove(member);
    }

    private void send() {
        DefaultMQProducer producer = new DefaultMQProducer("trimtab-bench-java");
        producer.setNamesrvAddr(args[0]);
        try {
            producer.start();
            long rate = Long.parseLong(args[6]);
            long begin = System.nanoTime();
            AtomicInteger unanswered = new AtomicInteger();
            for (long number = 0; !isOver; Thread.sleep(LOOK_MS)) {
                long due = (System.nanoTime() - begin) * rate / 1_000_000_000L;
                for (; number < due; number++) {
                    unanswered.incrementAndGet();
                    producer.send(new Message(topic, Long.toString(number).getBytes()), new SendCallback() {
                        @Override
                        public void onSuccess(SendResult result) {
                            sent.incrementAndGet();
                            unanswered.decrementAndGet();
                        }

                        @Override
                        public void onException(Throwable failure) {
                            errors.incrementAndGet();
                            unanswered.decrementAndGet();
                        }
                    });
                }
            }
            while (unanswered.get() > 0) {
                Thread.sleep(LOOK_MS);
            }
        } catch (Exception failure) {
            throw new IllegalStateException(failure);
        } finally {
            producer.shutdown();
        }
    }

    private void waitForAll() throws InterruptedException {
        long until = System.currentTimeMillis() + SETTLE_MS_MAX;
        while (got.size() < sent.get() && System.currentTimeMillis() < until) {
            Thread.sleep(LOOK_MS);
        }
        for (long seen = -1; seen != delivered.get() && System.currentTimeMillis() < until; Thread.sleep(QUIET_MS)) {
            seen = delivered.get();
        }
    }

    /** How long until every queue has exactly one holder. */
    private long settledMs() throws InterruptedException {
        long begin = System.currentTimeMillis();
        isSettled = false;
        while (!isSettled) {
            if (System.currentTimeMillis() - begin > SETTLE_MS_MAX) {
                throw new IllegalStateException("the group has not settled in " + SETTLE_MS_MAX + " ms");
            }
            Thread.sleep(LOOK_MS);
        }
        return System.currentTimeMillis() - begin;
    }

    private void look() {
        Map<MessageQueue, Object> last = new HashMap<>();
        Map<MessageQueue, Long> freeSince = new HashMap<>();
        long before = System.nanoTime();
        while (true) {
            try {
                Thread.sleep(LOOK_MS);
            } catch (InterruptedException ended) {
                return;
            }
            long now = System.nanoTime();
            double tookMs = (now - before) / 1e6;
            before = now;
            Map<MessageQueue, List<Object>> holders = holders();
            int once = 0;
            for (Map.Entry<MessageQueue, List<Object>> entry : holders.entrySet()) {
                List<Object> who = entry.getValue();
                if (who.size() == 1) {
                    once++;
                } else if (isCounting) {
                    doubleHeldMs += (who.size() - 1) * tookMs;
                }
                Object former = last.get(entry.getKey());
                if (former != null && !who.contains(former)) {
                    moved += isCounting ? 1 : 0;
                    Long since = freeSince.get(entry.getKey());
                    if (isCounting && since != null) {
                        unheldMsMax = Math.max(unheldMsMax, (now - since) / 1_000_000);
                    }
                }
                freeSince.remove(entry.getKey());
                last.put(entry.getKey(), who.get(0));
            }
            for (MessageQueue queue : last.keySet()) {
                if (!holders.containsKey(queue)) {
                    freeSince.putIfAbsent(queue, now);
                    unheldMs += isCounting ? tookMs : 0;
                }
            }
            isSettled = once == queues && holders.size() == queues;
        }
    }

    private Map<MessageQueue, List<Object>> holders() {
        Map<MessageQueue, List<Object>> found = new HashMap<>();
        for (DefaultMQPushConsumer member : members) {
            for (MessageQueue queue : member.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
                if (queue.getTopic().equals(topic)) {
                    found.computeIfAbsent(queue, key -> new ArrayList<>()).add(member);
                }
            }
        }
        return found;
    }
}
