import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The stock strategies on scripted views: one answer line for each line. Fields are parted by tabs, items by blanks, parts of a queue
 * by slashes. A view: what, setting, me, members, queues. Lists are sorted here, and the answer begins with the order they got.
 */
public class StrategyOracle {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream out = new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.print(answer(line.split("\t", -1)) + '\n');
        }
        out.flush();
        System.exit(0);
    }

    static String answer(String[] fields) {
        List<String> members = new ArrayList<>(items(fields[3]));
        List<MessageQueue> queues = queues(fields[4]);
        Collections.sort(members);
        Collections.sort(queues);
        AllocateMessageQueueStrategy strategy = strategy(fields[0], fields[1]);
        String share;
        try {
            share = text(strategy.allocate("g", fields[2], queues, members));
        } catch (IllegalArgumentException refused) {
            share = "refused";
        }
        return String.join("\t", strategy.getName(), String.join(" ", members), text(queues), share);
    }

    static AllocateMessageQueueStrategy strategy(String what, String setting) {
        switch (what) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(Integer.parseInt(setting));
            case "CONFIG":
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(queues(setting));
                return config;
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(new HashSet<>(Arrays.asList(setting.split(" ", -1))));
                return rooms;
            case "MACHINE_ROOM_NEARBY":
                String[] parts = setting.split(" ", 2);
                return new AllocateMachineRoomNearby(strategy(parts[0], parts[1]), new Prefixes());
            default:
                throw new IllegalStateException(what);
        }
    }

    /** The room is what stands before the first hyphen. */
    static class Prefixes implements AllocateMachineRoomNearby.MachineRoomResolver {
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("-", 2)[0];
        }

        public String consumerDeployIn(String clientId) {
            return clientId.split("-", 2)[0];
        }
    }

    static List<String> items(String text) {
        return text.isEmpty() ? List.of() : Arrays.asList(text.split(" "));
    }

    static List<MessageQueue> queues(String text) {
        List<MessageQueue> queues = new ArrayList<>();
        for (String item : items(text)) {
            String[] parts = item.split("/");
            queues.add(new MessageQueue(parts[0], parts[1], Integer.parseInt(parts[2])));
        }
        return queues;
    }

    static String text(List<MessageQueue> queues) {
        StringBuilder out = new StringBuilder();
        for (MessageQueue queue : queues) {
            out.append(out.length() == 0 ? "" : " ");
            out.append(queue.getTopic()).append('/').append(queue.getBrokerName()).append('/').append(queue.getQueueId());
        }
        return out.toString();
    }
}
