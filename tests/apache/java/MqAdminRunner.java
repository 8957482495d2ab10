import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs one mqadmin command after the other in one JVM: a line holds the arguments, in Base64 with spaces between; the
 * answer is a line that begins with ANSWER, what the command printed to stdout and stderr in Base64.
 */
public class MqAdminRunner {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = System.out;
        PrintStream err = System.err;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream page = new PrintStream(printed, true, "UTF-8");
            System.setOut(page);
            System.setErr(page);
            try {
                forgetCommands();
                MQAdminStartup.main0(decoded(line), null);
            } catch (Throwable failure) {
                failure.printStackTrace(page);
            } finally {
                System.setOut(out);
                System.setErr(err);
            }
            page.flush();
            out.println("ANSWER " + Base64.getEncoder().encodeToString(printed.toByteArray()));
            out.flush();
        }
        System.exit(0); // clients leave threads behind
    }

    /** Each run adds the commands anew and takes the oldest of a name, which may keep a closed client. */
    private static void forgetCommands() throws Exception {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }

    private static String[] decoded(String line) {
        String[] fields = line.split(" ", -1);
        for (int i = 0; i < fields.length; i++) {
            fields[i] = new String(Base64.getDecoder().decode(fields[i]), StandardCharsets.UTF_8);
        }
        return fields;
    }
}
