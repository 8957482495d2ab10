import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** The fields of one line. */
final class Fields {
    private final Map<?, ?> values;

    private Fields(Map<?, ?> values) {
        this.values = values;
    }

    static Fields parse(String line) {
        return new Fields(RemotingSerializable.fromJson(line, HashMap.class));
    }

    boolean has(String name) {
        return values.get(name) != null;
    }

    String text(String name) {
        Object value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("the line has no " + name);
        }
        return value.toString();
    }

    String text(String name, String otherwise) {
        return has(name) ? text(name) : otherwise;
    }

    long number(String name, long otherwise) {
        return has(name) ? ((Number) values.get(name)).longValue() : otherwise;
    }

    boolean flag(String name) {
        return Boolean.TRUE.equals(values.get(name));
    }

    byte[] bytes(String name) {
        return Base64.getDecoder().decode(text(name));
    }

    Map<String, String> texts(String name) {
        Map<String, String> texts = new HashMap<>();
        if (has(name)) {
            ((Map<?, ?>) values.get(name)).forEach((key, value) -> texts.put(key.toString(), value.toString()));
        }
        return texts;
    }

    List<Fields> list(String name) {
        List<Fields> list = new ArrayList<>();
        for (Object value : has(name) ? (List<?>) values.get(name) : Collections.emptyList()) {
            list.add(new Fields((Map<?, ?>) value));
        }
        return list;
    }

    /** A queue is written as `{"topic": …, "broker": …, "id": …}`. */
    MessageQueue queue() {
        return new MessageQueue(text("topic"), text("broker"), (int) number("id", 0));
    }

    MessageQueue queue(String name) {
        return new Fields((Map<?, ?>) values.get(name)).queue();
    }

    /** What every client has: short periods, because 5.x drops a heartbeat while another is under way and waits for the next. */
    void configure(ClientConfig client) {
        client.setNamesrvAddr(text("nameserver"));
        client.setInstanceName(text("client"));
        client.setPollNameServerInterval(1_000);
        client.setPersistConsumerOffsetInterval(1_000);
        client.setHeartbeatBrokerInterval((int) number("heartbeat_ms", 500));
        client.setPullTimeDelayMillsWhenException(100);
        client.setClientCallbackExecutorThreads(2);
        client.setMqClientApiTimeout(30_000);
    }
}
