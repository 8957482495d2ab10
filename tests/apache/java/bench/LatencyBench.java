import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The stock push consumer, and how old messages are when its listener gets them: `nameserver topic group first end`.
 *
 * A body begins with the message's number and the monotonic nanoseconds of its send, which on Linux are the same clock in every process. It
 * says `ready` with the first message, whose number is negative, and one line of JSON when all numbers up to `end` came; those below
 * `first` only warm up.
 */
public final class LatencyBench {
    private LatencyBench() {
    }

    public static void main(String[] args) throws Exception {
        int first = Integer.parseInt(args[3]);
        int end = Integer.parseInt(args[4]);
        long[] nanos = new long[end];
        AtomicInteger left = new AtomicInteger(end);
        AtomicBoolean isReady = new AtomicBoolean();
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (received, context) -> {
            long now = System.nanoTime();
            for (MessageExt message : received) {
                ByteBuffer body = ByteBuffer.wrap(message.getBody());
                long number = body.getLong();
                if (number < 0) {
                    if (isReady.compareAndSet(false, true)) {
                        System.out.println("ready");
                    }
                } else {
                    nanos[(int) number] = now - body.getLong();
                    if (left.decrementAndGet() == 0) {
                        done.countDown();
                    }
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean whole = done.await(5, TimeUnit.MINUTES);
        consumer.shutdown();
        if (!whole) {
            throw new IllegalStateException(left.get() + " of " + end + " messages did not come in five minutes");
        }
        long[] counted = Arrays.copyOfRange(nanos, first, end);
        Arrays.sort(counted);
        System.out.println(String.format(Locale.ROOT, "{\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f}",
            at(counted, 0.5), at(counted, 0.99), counted[counted.length - 1] / 1e3));
        System.exit(0);
    }

    private static double at(long[] sorted, double share) {
        return sorted[(int) ((sorted.length - 1) * share)] / 1e3;
    }
}
