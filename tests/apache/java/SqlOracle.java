import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * A line is an expression and property maps, all fields in Base64: "expression name:value,name:value ...".
 * The answer is E if it does not compile, else a letter for each map: T true, F false, N null, X failed.
 */
public class SqlOracle {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, "US-ASCII");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(line.split(" ", -1)));
        }
        out.flush();
    }

    private static String answer(String[] fields) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text(fields[0]));
        } catch (Throwable refused) {
            return "E";
        }
        StringBuilder letters = new StringBuilder();
        for (int i = 1; i < fields.length; i++) {
            letters.append(letter(expression, new Properties(fields[i])));
        }
        return letters.toString();
    }

    private static char letter(Expression expression, EvaluationContext properties) {
        try {
            Object value = expression.evaluate(properties);
            return value == null ? 'N' : value.equals(Boolean.TRUE) ? 'T' : value.equals(Boolean.FALSE) ? 'F' : '?';
        } catch (Throwable failed) {
            return 'X';
        }
    }

    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }

    private static final class Properties implements EvaluationContext {
        private final Map<String, Object> values = new HashMap<>();

        Properties(String field) {
            for (String pair : field.isEmpty() ? new String[0] : field.split(",", -1)) {
                String[] parts = pair.split(":", -1);
                values.put(text(parts[0]), text(parts[1]));
            }
        }

        @Override
        public Object get(String name) {
            return values.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return values;
        }
    }
}
