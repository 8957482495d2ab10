import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.common.UtilAll;

/** Answers each line with its String.hashCode and RocketMQ's crc32 of its UTF-8 bytes. */
public class Hashes {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(line.hashCode() + " " + UtilAll.crc32(line.getBytes(StandardCharsets.UTF_8)));
        }
    }
}
