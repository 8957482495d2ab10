import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What happened, in order, for all clients of this process. */
final class Events {
    private static final List<Map<String, Object>> ALL = new ArrayList<>();

    private Events() {
    }

    static synchronized void add(String client, String kind, Map<String, Object> details) {
        Map<String, Object> event = new LinkedHashMap<>();
        event.put("number", ALL.size());
        event.put("client", client);
        event.put("kind", kind);
        event.putAll(details);
        ALL.add(event);
    }

    static synchronized List<Map<String, Object>> since(int number) {
        return new ArrayList<>(ALL.subList(Math.min(number, ALL.size()), ALL.size()));
    }

    static Map<String, Object> queue(MessageQueue queue) {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("topic", queue.getTopic());
        map.put("broker", queue.getBrokerName());
        map.put("id", queue.getQueueId());
        return map;
    }

    static List<Map<String, Object>> queues(Iterable<MessageQueue> queues) {
        List<Map<String, Object>> list = new ArrayList<>();
        queues.forEach(queue -> list.add(queue(queue)));
        return list;
    }

    static Map<String, Object> message(MessageExt message) {
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("topic", message.getTopic());
        map.put("broker", message.getBrokerName());
        map.put("queue_id", message.getQueueId());
        map.put("offset", message.getQueueOffset());
        map.put("id", message.getMsgId());
        if (message instanceof MessageClientExt) {
            map.put("offset_id", ((MessageClientExt) message).getOffsetMsgId());
        }
        map.put("body", message.getBody() == null ? "" : Base64.getEncoder().encodeToString(message.getBody()));
        map.put("flag", message.getFlag());
        map.put("sys_flag", message.getSysFlag());
        map.put("times", message.getReconsumeTimes());
        map.put("born_ms", message.getBornTimestamp());
        map.put("stored_ms", message.getStoreTimestamp());
        map.put("properties", new LinkedHashMap<>(message.getProperties()));
        return map;
    }

    static List<Map<String, Object>> messages(List<MessageExt> messages) {
        List<Map<String, Object>> list = new ArrayList<>();
        if (messages != null) {
            messages.forEach(message -> list.add(message(message)));
        }
        return list;
    }

    /** The stock strategy, and an event each time it is asked. */
    static AllocateMessageQueueStrategy observed(String client) {
        return observed(client, "AVG");
    }

    static AllocateMessageQueueStrategy observed(String client, String strategy) {
        AllocateMessageQueueStrategy stock = strategy(strategy);
        return new AllocateMessageQueueStrategy() {
            @Override
            public List<MessageQueue> allocate(
                    String group, String id, List<MessageQueue> queues, List<String> members) {
                List<MessageQueue> mine = stock.allocate(group, id, queues, members);
                Map<String, Object> details = new LinkedHashMap<>();
                details.put("topic", queues.get(0).getTopic());
                details.put("members", new ArrayList<>(members));
                details.put("queues", queues(mine));
                add(client, "shared", details);
                return mine;
            }

            @Override
            public String getName() {
                return stock.getName();
            }
        };
    }

    private static AllocateMessageQueueStrategy strategy(String name) {
        if (name.startsWith("CONFIG ")) {
            return configured(name.split(" "));
        }
        if (name.startsWith("MACHINE_ROOM ")) {
            AllocateMessageQueueByMachineRoom strategy = new AllocateMessageQueueByMachineRoom();
            strategy.setConsumeridcs(Collections.singleton(name.split(" ")[1]));
            return strategy;
        }
        switch (name) {
            case "MACHINE_ROOM_NEARBY":
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new TwoRooms());
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash();
            default:
                throw new IllegalArgumentException("no strategy " + name);
        }
    }

    /** `CONFIG topic broker 0,1,2`. */
    private static AllocateMessageQueueStrategy configured(String[] words) {
        List<MessageQueue> queues = new ArrayList<>();
        for (String id : words[3].split(",")) {
            queues.add(new MessageQueue(words[1], words[2], Integer.parseInt(id)));
        }
        AllocateMessageQueueByConfig strategy = new AllocateMessageQueueByConfig();
        strategy.setMessageQueueList(queues);
        return strategy;
    }

    /** Queues by their number, members by their names: the rooms that the tests know too. */
    private static final class TwoRooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return "room-" + queue.getQueueId() % 2;
        }

        @Override
        public String consumerDeployIn(String clientId) {
            return "room-" + clientId.chars().sum() % 2;
        }
    }
}
