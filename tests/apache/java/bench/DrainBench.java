import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** The stock push consumer drains a topic: name server, topic, group, messages that are there, messages for one listener call. */
public final class DrainBench {
    private DrainBench() {
    }

    public static void main(String[] args) throws Exception {
        long messages = Long.parseLong(args[3]);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(Integer.parseInt(args[4]));
        consumer.subscribe(args[1], "*");
        AtomicLong count = new AtomicLong();
        AtomicLong bytes = new AtomicLong();
        AtomicLong first = new AtomicLong();
        AtomicLong cpuFirst = new AtomicLong();
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        CountDownLatch done = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (received, context) -> {
            if (first.compareAndSet(0, System.nanoTime())) {
                cpuFirst.set(system.getProcessCpuTime());
            }
            for (MessageExt message : received) {
                bytes.addAndGet(message.getBody().length);
            }
            if (count.addAndGet(received.size()) >= messages) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        long start = System.nanoTime();
        consumer.start();
        boolean whole = done.await(10, TimeUnit.MINUTES);
        long end = System.nanoTime();
        long cpuEnd = system.getProcessCpuTime();
        consumer.shutdown();
        if (!whole) {
            throw new IllegalStateException(count.get() + " of " + messages + " messages came in ten minutes");
        }
        // From the first message on: starting a JVM's client and the group's first rebalance are not draining.
        System.out.println(String.format(
            "{\"messages\":%d,\"body_bytes\":%d,\"seconds\":%.6f,\"seconds_with_start\":%.6f,\"cpu_seconds\":%.6f}",
            count.get(), bytes.get(), (end - first.get()) / 1e9, (end - start) / 1e9, (cpuEnd - cpuFirst.get()) / 1e9));
    }
}
