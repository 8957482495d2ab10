import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.annotation.CFNotNull;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/** What the stock jars make of command frames and of header classes. One answer line for each line asked. */
public class CommandOracle {
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        switch (args[0]) {
            case "read" -> eachLine(out, CommandOracle::read);
            case "write" -> write(out, Long.parseLong(args[1]), Integer.parseInt(args[2]));
            case "headers" -> headers(out);
            default -> throw new IllegalArgumentException(args[0]);
        }
        out.flush();
        System.exit(0);
    }

    interface Answer {
        String to(String line) throws Exception;
    }

    static void eachLine(PrintStream out, Answer answer) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer.to(line));
        }
    }

    /** A whole frame in hex, told in words. */
    static String read(String line) throws Exception {
        byte[] frame = HEX.parseHex(line);
        ByteBuffer afterLength = ByteBuffer.wrap(frame, 4, frame.length - 4).slice();
        return told(RemotingCommand.decode(afterLength));
    }

    static String told(RemotingCommand command) {
        StringBuilder text = new StringBuilder();
        text.append(command.getCode()).append(' ').append(command.getLanguage()).append(' ').append(command.getVersion());
        text.append(' ').append(command.getOpaque()).append(' ').append(command.getFlag());
        text.append(' ').append(command.getRemark() == null ? "-" : "r" + hex(command.getRemark()));
        text.append(' ').append(command.getBody() == null ? "-" : HEX.formatHex(command.getBody()));
        Map<String, String> fields = command.getExtFields() == null ? Map.of() : command.getExtFields();
        for (Map.Entry<String, String> field : new TreeMap<>(fields).entrySet()) {
            if (field.getValue() != null) {
                text.append(' ').append(hex(field.getKey())).append('=').append(hex(field.getValue()));
            }
        }
        return text.toString();
    }

    static String hex(String text) {
        return HEX.formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    /** Random commands, each as a frame and told in words. */
    static void write(PrintStream out, long seed, int count) throws Exception {
        Random random = new Random(seed);
        for (int i = 0; i < count; i++) {
            RemotingCommand command = RemotingCommand.createRequestCommand(random.nextInt(400), null);
            command.setOpaque(random.nextInt());
            command.setFlag(random.nextInt(4));
            command.setVersion(random.nextInt(500));
            command.setLanguage(LanguageCode.values()[random.nextInt(LanguageCode.values().length)]);
            command.setRemark(random.nextBoolean() ? null : text(random));
            command.setExtFields(random.nextInt(5) == 0 ? null : fields(random));
            command.setSerializeTypeCurrentRPC(random.nextBoolean() ? SerializeType.JSON : SerializeType.ROCKETMQ);
            byte[] body = new byte[random.nextInt(40)];
            random.nextBytes(body);
            command.setBody(body.length == 0 ? null : body);
            ByteBuffer frame = command.encode();
            byte[] bytes = new byte[frame.remaining()];
            frame.get(bytes);
            out.println(HEX.formatHex(bytes) + " " + read(HEX.formatHex(bytes)));
        }
    }

    static HashMap<String, String> fields(Random random) {
        HashMap<String, String> fields = new HashMap<>();
        for (int i = random.nextInt(12); i > 0; i--) {
            // Identifiers: the fastjson2 of 5.5.0 cannot read back other names that it wrote itself.
            fields.put("field" + random.nextInt(50), text(random) + "v");
        }
        return fields;
    }

    /** Text with control characters, quotes, letters of several scripts and characters beyond the basic plane. */
    static String text(Random random) {
        StringBuilder text = new StringBuilder();
        for (int i = random.nextInt(12); i > 0; i--) {
            switch (random.nextInt(8)) {
                case 0 -> text.append((char) random.nextInt(32));
                case 1 -> text.append("\"\\/'<>&\u007f".charAt(random.nextInt(8)));
                case 2 -> text.append((char) (0x80 + random.nextInt(0x700)));
                case 3 -> text.append((char) (0x2000 + random.nextInt(0x3000)));
                case 4 -> text.appendCodePoint(0x1F300 + random.nextInt(0x300));
                default -> text.append((char) (' ' + random.nextInt(95)));
            }
        }
        return text.toString();
    }

    /** Every header class in the jars: its name, then `field:type:needed` for each field. */
    static void headers(PrintStream out) throws Exception {
        for (String path : System.getProperty("java.class.path").split(":")) {
            if (!path.contains("rocketmq-") || !path.endsWith(".jar")) {
                continue;
            }
            try (JarFile jar = new JarFile(path)) {
                Enumeration<JarEntry> entries = jar.entries();
                while (entries.hasMoreElements()) {
                    String name = entries.nextElement().getName();
                    if (name.contains("protocol/header/") && name.endsWith(".class")) {
                        header(out, Class.forName(name.replace('/', '.').substring(0, name.length() - 6)));
                    }
                }
            }
        }
    }

    static void header(PrintStream out, Class<?> type) {
        if (!CommandCustomHeader.class.isAssignableFrom(type)) {
            return;
        }
        StringBuilder text = new StringBuilder(type.getSimpleName());
        for (Class<?> at = type; at != null && at != Object.class; at = at.getSuperclass()) {
            for (Field field : at.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers())) {
                    boolean needed = field.isAnnotationPresent(CFNotNull.class) || field.getType().isPrimitive();
                    text.append(' ').append(field.getName()).append(':');
                    text.append(field.getType().getSimpleName().toLowerCase()).append(':').append(needed);
                }
            }
        }
        out.println(text);
    }
}
