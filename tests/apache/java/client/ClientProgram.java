import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * Stock clients, driven by lines: a JSON object in, {"ok": …} or {"error": …} out. Clients have names; what happens to them
 * meanwhile is kept as numbered events until somebody asks for it.
 */
public class ClientProgram {
    private static final Map<String, Client> CLIENTS = new LinkedHashMap<>();

    /** One named client of any kind. */
    interface Client {
        /** The id that brokers know it by. */
        String id();

        Object act(String what, Fields fields) throws Exception;

        void shutdown();
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);  // stdout is ours alone
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("ok", answer(Fields.parse(line)));
            } catch (Exception failure) {
                answer.put("error", failure.getClass().getSimpleName() + ": " + failure.getMessage());
                answer.put("code", codeOf(failure));
            }
            out.println(RemotingSerializable.toJson(answer, false));
        }
        System.exit(0);  // without goodbye, if nobody asked for one
    }

    static Client client(String name) {
        Client client = CLIENTS.get(name);
        if (client == null) {
            throw new IllegalArgumentException("no client is called " + name);
        }
        return client;
    }

    private static Object answer(Fields fields) throws Exception {
        String what = fields.text("do");
        switch (what) {
            case "events":
                return Events.since((int) fields.number("from", 0));
            case "make":
                Client made = make(fields);
                CLIENTS.put(fields.text("client"), made);
                return made.id();
            case "shutdown":
                client(fields.text("client")).shutdown();
                CLIENTS.remove(fields.text("client"));
                return null;
            default:
                return client(fields.text("client")).act(what, fields);
        }
    }

    private static Client make(Fields fields) throws Exception {
        switch (fields.text("kind")) {
            case "producer":
                return new Producer(fields);
            case "push":
                return new Push(fields);
            case "lite":
                return new Lite(fields);
            case "pull":
                return new Pull(fields);
            default:
                throw new IllegalArgumentException("no kind " + fields.text("kind"));
        }
    }

    private static int codeOf(Throwable failure) {
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            if (cause instanceof MQBrokerException) {
                return ((MQBrokerException) cause).getResponseCode();
            }
            if (cause instanceof MQClientException && ((MQClientException) cause).getResponseCode() > 0) {
                return ((MQClientException) cause).getResponseCode();
            }
        }
        return -1;
    }
}
