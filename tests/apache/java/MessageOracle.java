import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.acl.common.AclUtils;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageId;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** What the stock jars make of messages, batches, properties, ids and signatures. One answer line for each line asked. */
public class MessageOracle {
    static final HexFormat HEX = HexFormat.of();

    interface Answer {
        String to(String[] words) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        Answer answer = switch (args[0]) {
            case "encode" -> MessageOracle::encode;
            case "decode" -> MessageOracle::decode;
            case "read-properties" -> words -> told(MessageDecoder.string2messageProperties(text(words[0])));
            case "write-properties" -> words -> hex(MessageDecoder.messageProperties2String(map(words[0])));
            case "encode-batch" -> MessageOracle::encodeBatch;
            case "decode-batch" -> MessageOracle::decodeBatch;
            case "offset-id" -> MessageOracle::offsetId;
            case "read-unique-ids" -> MessageOracle::readUniqueId;
            case "write-unique-ids" -> words -> System.currentTimeMillis() + " " + MessageClientIDSetter.createUniqID() + " " + System.currentTimeMillis();
            case "hash" -> words -> "" + new String(bytes(words[0]), StandardCharsets.UTF_16BE).hashCode();
            case "crc" -> words -> "" + UtilAll.crc32(bytes(words[0]));
            case "sign" -> MessageOracle::sign;
            default -> throw new IllegalArgumentException(args[0]);
        };
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer.to(line.split(" ")));
        }
        out.flush();
        System.exit(0);
    }

    static byte[] bytes(String word) {
        return word.equals("-") ? new byte[0] : HEX.parseHex(word);
    }

    static String text(String word) {
        return new String(bytes(word), StandardCharsets.UTF_8);
    }

    static String hex(byte[] data) {
        return data == null || data.length == 0 ? "-" : HEX.formatHex(data);
    }

    static String hex(String text) {
        return hex(text.getBytes(StandardCharsets.UTF_8));
    }

    /** name=value,name=value in the order given. */
    static Map<String, String> map(String word) {
        Map<String, String> map = new LinkedHashMap<>();
        if (!word.equals("-")) {
            for (String pair : word.split(",")) {
                String[] parts = pair.split("=");
                map.put(text(parts[0]), text(parts[1]));
            }
        }
        return map;
    }

    static String told(Map<String, String> map) {
        if (map == null || map.isEmpty()) {
            return "-";
        }
        List<String> pairs = new ArrayList<>();
        for (Map.Entry<String, String> entry : new TreeMap<>(map).entrySet()) {
            pairs.add(hex(entry.getKey()) + "=" + hex(entry.getValue()));
        }
        return String.join(",", pairs);
    }

    static InetSocketAddress address(String word) throws Exception {
        ByteBuffer host = ByteBuffer.wrap(bytes(word));
        byte[] ip = new byte[host.remaining() - 4];
        host.get(ip);
        return new InetSocketAddress(InetAddress.getByAddress(ip), host.getInt());
    }

    static String told(SocketAddress socket) {
        InetSocketAddress address = (InetSocketAddress) socket;
        byte[] ip = address.getAddress().getAddress();
        return HEX.formatHex(ByteBuffer.allocate(ip.length + 4).put(ip).putInt(address.getPort()).array());
    }

    static String encode(String[] words) throws Exception {
        MessageExt message = new MessageExt();
        message.setQueueId(Integer.parseInt(words[0]));
        message.setFlag(Integer.parseInt(words[1]));
        message.setQueueOffset(Long.parseLong(words[2]));
        message.setCommitLogOffset(Long.parseLong(words[3]));
        message.setSysFlag(Integer.parseInt(words[4]));
        message.setBornTimestamp(Long.parseLong(words[5]));
        message.setBornHost(address(words[6]));
        message.setStoreTimestamp(Long.parseLong(words[7]));
        message.setStoreHost(address(words[8]));
        message.setReconsumeTimes(Integer.parseInt(words[9]));
        message.setPreparedTransactionOffset(Long.parseLong(words[10]));
        message.setBody(bytes(words[11]));
        message.setBodyCRC(UtilAll.crc32(message.getBody()));
        message.setTopic(text(words[12]));
        MessageAccessor.setProperties(message, map(words[13]));
        return hex(MessageDecoder.encode(message, true));
    }

    static String decode(String[] words) {
        MessageExt message = MessageDecoder.clientDecode(ByteBuffer.wrap(bytes(words[0])), true);
        if (message == null) {
            return "refused";
        }
        return String.join(" ",
            "" + message.getStoreSize(), "" + message.getBodyCRC(), "" + message.getQueueId(), "" + message.getFlag(),
            "" + message.getQueueOffset(), "" + message.getCommitLogOffset(), "" + (message.getSysFlag() & ~1),
            "" + message.getBornTimestamp(), told(message.getBornHost()),
            "" + message.getStoreTimestamp(), told(message.getStoreHost()),
            "" + message.getReconsumeTimes(), "" + message.getPreparedTransactionOffset(),
            hex(message.getBody()), hex(message.getTopic()), hex(message.getMsgId()), ((MessageClientExt) message).getOffsetMsgId(),
            told(message.getProperties()), message.getTags() == null ? "-" : hex(message.getTags()));
    }

    static String encodeBatch(String[] words) {
        List<Message> messages = new ArrayList<>();
        for (String word : words) {
            String[] parts = word.split(";");
            Message message = new Message();
            message.setFlag(Integer.parseInt(parts[0]));
            message.setBody(bytes(parts[1]));
            MessageAccessor.setProperties(message, map(parts[2]));
            messages.add(message);
        }
        return hex(MessageDecoder.encodeMessages(messages));
    }

    static String decodeBatch(String[] words) throws Exception {
        List<String> told = new ArrayList<>();
        for (Message message : MessageDecoder.decodeMessages(ByteBuffer.wrap(bytes(words[0])))) {
            told.add(message.getFlag() + ";" + hex(message.getBody()) + ";" + told(message.getProperties()));
        }
        return String.join(" ", told);
    }

    static String offsetId(String[] words) throws Exception {
        String id = MessageDecoder.createMessageId(address(words[0]), Long.parseLong(words[1]));
        MessageId read = MessageDecoder.decodeMessageId(words[2]);
        return id + " " + told(read.getAddress()) + " " + read.getOffset();
    }

    static String readUniqueId(String[] words) {
        return System.currentTimeMillis() + " " + MessageClientIDSetter.getNearlyTimeFromID(words[0]).getTime() + " "
            + HEX.formatHex(MessageClientIDSetter.getIPFromID(words[0])) + " " + MessageClientIDSetter.getIPStrFromID(words[0])
            + " " + MessageClientIDSetter.getPidFromID(words[0]);
    }

    static String sign(String[] words) {
        RemotingCommand request = RemotingCommand.createRequestCommand(310, null);
        request.setBody(bytes(words[1]));
        byte[] content = AclUtils.combineRequestContent(request, new TreeMap<>(map(words[0])));
        return hex(content) + " " + AclUtils.calSignature(content, text(words[2]));
    }
}
