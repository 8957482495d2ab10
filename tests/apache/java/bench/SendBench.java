import java.util.Arrays;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.LongAdder;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * The stock producer under a load: `nameserver topic kind in-flight size messages batch fault rate`.
 *
 * kind: sync (one thread per message in flight), async, batch (one thread per batch in flight), open (async, `rate` messages a
 * second whatever comes back). A quarter of the load warms up first. One line of JSON comes out.
 */
public class SendBench {
    private static DefaultMQProducer producer;
    private static String topic;
    private static int size;
    private static int batch;
    private static final LongAdder errors = new LongAdder();
    private static final Map<String, LongAdder> shares = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        topic = args[1];
        int inFlight = Integer.parseInt(args[3]);
        size = Integer.parseInt(args[4]);
        int messages = Integer.parseInt(args[5]);
        batch = Integer.parseInt(args[6]);
        producer = new DefaultMQProducer("bench-java");
        producer.setNamesrvAddr(args[0]);
        producer.setVipChannelEnabled(false);
        producer.setSendLatencyFaultEnable(Boolean.parseBoolean(args[7]));
        producer.start();
        load(args[2], inFlight, messages / 4, Integer.parseInt(args[8]));
        errors.reset();
        shares.clear();
        long cpu = cpuNanos();
        long start = System.nanoTime();
        long[] latencies = load(args[2], inFlight, messages, Integer.parseInt(args[8]));
        double seconds = (System.nanoTime() - start) / 1e9;
        double cpuSeconds = (cpuNanos() - cpu) / 1e9;
        Arrays.sort(latencies);
        double mean = Arrays.stream(latencies).average().orElse(0) / 1e6;
        Map<String, Long> told = new TreeMap<>();
        shares.forEach((name, count) -> told.put('"' + name + '"', count.sum()));
        System.out.printf(java.util.Locale.ROOT,
            "{\"messages\":%d,\"seconds\":%f,\"messages_per_second\":%f,\"mean_ms\":%f,\"p50_ms\":%f,\"p99_ms\":%f,\"errors\":%d,"
                + "\"cpu_seconds\":%f,\"rss_mib\":%f,\"shares\":%s}%n",
            messages, seconds, messages / seconds, mean, at(latencies, 0.5), at(latencies, 0.99), errors.sum(),
            cpuSeconds, rssMib(), told.toString().replace('=', ':'));
        producer.shutdown();
        System.exit(0);
    }

    private static double at(long[] sorted, double share) {
        return sorted.length == 0 ? 0 : sorted[(int) Math.min(sorted.length - 1, sorted.length * share)] / 1e6;
    }

    private static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) java.lang.management.ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }

    private static double rssMib() throws Exception {
        for (String line : java.nio.file.Files.readAllLines(java.nio.file.Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.replaceAll("[^0-9]", "")) / 1024.0;
            }
        }
        return 0;
    }

    private static Message message() {
        return new Message(topic, "TagA", new byte[size]);
    }

    private static void count(SendResult result) {
        shares.computeIfAbsent(result.getMessageQueue().getBrokerName(), name -> new LongAdder()).increment();
    }

    private static long[] load(String kind, int inFlight, int messages, int rate) throws Exception {
        if (kind.equals("sync") || kind.equals("batch")) {
            return threads(kind.equals("batch"), inFlight, messages);
        }
        return async(inFlight, messages, kind.equals("open") ? rate : 0);
    }

    private static long[] threads(boolean batches, int inFlight, int messages) throws Exception {
        int sends = batches ? messages / batch : messages;
        long[] latencies = new long[sends];
        AtomicInteger next = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < inFlight; number++) {
            Thread thread = new Thread(() -> {
                for (int i = next.getAndIncrement(); i < sends; i = next.getAndIncrement()) {
                    long began = System.nanoTime();
                    try {
                        if (batches) {
                            List<Message> together = new ArrayList<>(batch);
                            for (int j = 0; j < batch; j++) {
                                together.add(message());
                            }
                            count(producer.send(together));
                        } else {
                            count(producer.send(message()));
                        }
                    } catch (Exception failed) {
                        errors.increment();
                    }
                    latencies[i] = System.nanoTime() - began;
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return latencies;
    }

    private static long[] async(int inFlight, int messages, int rate) throws Exception {
        long[] latencies = new long[messages];
        Semaphore room = new Semaphore(inFlight);
        long start = System.nanoTime();
        for (int i = 0; i < messages; i++) {
            int number = i;
            if (rate > 0) {
                long due = start + number * 1_000_000_000L / rate;
                while (System.nanoTime() < due) {
                    java.util.concurrent.locks.LockSupport.parkNanos(Math.max(1, due - System.nanoTime()));
                }
            }
            room.acquire();
            long began = System.nanoTime();
            try {
                producer.send(message(), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        latencies[number] = System.nanoTime() - began;
                        count(result);
                        room.release();
                    }

                    @Override
                    public void onException(Throwable error) {
                        latencies[number] = System.nanoTime() - began;
                        errors.increment();
                        room.release();
                    }
                });
            } catch (Exception failed) {
                errors.increment();
                room.release();
            }
        }
        room.acquire(inFlight);
        return latencies;
    }
}
