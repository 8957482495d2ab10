import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.impl.consumer.ProcessQueue;
import org.apache.rocketmq.client.impl.consumer.PullRequest;
import org.apache.rocketmq.client.impl.consumer.RebalanceImpl;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData;

/** The stock RebalanceImpl on scripted views and answers: one answer line for each line, a history each. */
public class RebalanceOracle {
    /** One of them starts a dozen threads, so it serves every history of its id. */
    private static final Map<String, Scripted> CLIENTS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(play(line.split(" ")));
        }
        System.exit(0);
    }

    /** The group as the script says that a broker tells it. */
    static final class Scripted extends MQClientInstance {
        List<String> members;

        Scripted(String id) {
            super(new ClientConfig(), 0, id);
        }

        @Override
        public List<String> findConsumerIdList(String topic, String group) {
            return members == null ? null : new ArrayList<>(members);
        }
    }

    /** What a push consumer would do, with the answers of the script. */
    static final class Member extends RebalanceImpl {
        final Set<String> refused = new HashSet<>();
        final Set<String> busy = new HashSet<>();
        final Map<String, Long> starts = new HashMap<>();
        final List<String> pulls = new ArrayList<>();
        final Set<String> changed = new TreeSet<>();

        Member(MessageModel model, MQClientInstance client) {
            super("g", model, new AllocateMessageQueueAveragely(), client);
        }

        @Override
        public boolean lock(MessageQueue queue) {
            return !refused.contains(name(queue));
        }

        @Override
        public void unlock(MessageQueue queue, boolean oneway) {
        }

        @Override
        public void messageQueueChanged(String topic, Set<MessageQueue> all, Set<MessageQueue> mine) {
            changed.add(topic);
        }

        @Override
        public boolean removeUnnecessaryMessageQueue(MessageQueue queue, ProcessQueue process) {
            return !busy.contains(name(queue));
        }

        @Override
        public ConsumeType consumeType() {
            return ConsumeType.CONSUME_PASSIVELY;
        }

        @Override
        public void removeDirtyOffset(MessageQueue queue) {
        }

        @Override
        public long computePullFromWhere(MessageQueue queue) {
            return starts.getOrDefault(name(queue), 0L);
        }

        @Override
        public long computePullFromWhereWithException(MessageQueue queue) {
            return computePullFromWhere(queue);
        }

        @Override
        public void dispatchPullRequest(List<PullRequest> requests) {
            for (PullRequest request : requests) {
                pulls.add(name(request.getMessageQueue()) + "@" + request.getNextOffset());
            }
        }
    }

    static String name(MessageQueue queue) {
        return queue.getTopic() + "/" + queue.getBrokerName() + "/" + queue.getQueueId();
    }

    /**
     * Words: my id; c, o or b for clustering, ordered or broadcasting; then q:topic:b0=4,b1=2 (its queues; q:topic:- unknown),
     * m:c1,c2 (members; m:- unknown), s:t1,t2 (subscriptions), x:queue (no pull for 130 s), l:queues refused, k:queues busy,
     * o:queue=offset, and r for a round, which is answered.
     */
    static String play(String[] words) {
        Scripted client = CLIENTS.computeIfAbsent(words[0], Scripted::new);
        client.members = null;
        boolean ordered = words[1].equals("o");
        Member member = new Member(words[1].equals("b") ? MessageModel.BROADCASTING : MessageModel.CLUSTERING, client);
        StringBuilder out = new StringBuilder();
        for (String word : Arrays.asList(words).subList(2, words.length)) {
            String[] parts = word.split(":", -1);
            switch (parts[0]) {
                case "q" -> queues(member, parts[1], parts[2]);
                case "m" -> client.members = parts[1].equals("-") ? null : list(parts[1]);
                case "s" -> subscriptions(member, list(parts[1]));
                case "x" -> silent(member, parts[1]);
                case "l" -> replace(member.refused, list(parts[1]));
                case "k" -> replace(member.busy, list(parts[1]));
                case "o" -> member.starts.put(parts[1].split("=")[0], Long.parseLong(parts[1].split("=")[1]));
                case "r" -> out.append(round(member, ordered));
                default -> throw new IllegalArgumentException(word);
            }
        }
        return out.toString();
    }

    static String round(Member member, boolean ordered) {
        member.pulls.clear();
        member.changed.clear();
        member.doRebalance(ordered);
        Set<String> held = new TreeSet<>();
        member.getProcessQueueTable().forEach((queue, process) -> {
            if (!process.isDropped()) {
                held.add(name(queue));
            }
        });
        return "held=" + held + " pulls=" + new TreeSet<>(member.pulls) + " changed=" + member.changed + ";";
    }

    static void queues(Member member, String topic, String counts) {
        if (counts.equals("-")) {
            member.getTopicSubscribeInfoTable().remove(topic);
            return;
        }
        Set<MessageQueue> queues = new HashSet<>();
        for (String part : list(counts)) {
            for (int id = 0; id < Integer.parseInt(part.split("=")[1]); id++) {
                queues.add(new MessageQueue(topic, part.split("=")[0], id));
            }
        }
        member.getTopicSubscribeInfoTable().put(topic, queues);
    }

    static void subscriptions(Member member, List<String> topics) {
        member.getSubscriptionInner().keySet().retainAll(topics);
        for (String topic : topics) {
            member.getSubscriptionInner().putIfAbsent(topic, new SubscriptionData(topic, "*"));
        }
    }

    static void silent(Member member, String name) {
        member.getProcessQueueTable().forEach((queue, process) -> {
            if (name(queue).equals(name)) {
                process.setLastPullTimestamp(System.currentTimeMillis() - 130_000);
            }
        });
    }

    static List<String> list(String text) {
        return text.isEmpty() ? new ArrayList<>() : new ArrayList<>(Arrays.asList(text.split(",")));
    }

    static void replace(Set<String> set, List<String> names) {
        set.clear();
        set.addAll(names);
    }
}
