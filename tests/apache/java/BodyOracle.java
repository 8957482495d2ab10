import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Array;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.StringJoiner;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * What the stock jars make of JSON bodies. One answer line for each line asked; "!" and a reason where Java refuses.
 *
 * <pre>
 * known CLASS                   yes | no
 * reread CLASS HEX              what Java writes after it has read this
 * random CLASS SEED SIZE NULLS  a random value; NULLS = comma-separated Class.field that may be null, or -
 * inflate HEX VERSION           a compressed registration, as plain JSON
 * deflate HEX                   a plain registration, compressed
 * properties HEX                the texts in properties, each as hex of UTF-16: KEY=VALUE,KEY=VALUE
 * </pre>
 */
public class BodyOracle {
    static final HexFormat HEX = HexFormat.of();
    static final String ROOT = "org.apache.rocketmq.";
    static final String[] PACKAGES = {
        "common.protocol.body.", "common.protocol.header.", "common.protocol.heartbeat.", "common.protocol.route.",
        "common.protocol.topic.", "common.admin.", "common.subscription.", "common.", "remoting.protocol.body.",
        "remoting.protocol.heartbeat.", "remoting.protocol.route.", "remoting.protocol.topic.", "remoting.protocol.admin.",
        "remoting.protocol.subscription.", "remoting.protocol.statictopic.", "remoting.protocol.", "common.message.",
        "store.schedule.", "broker.schedule.", "client.consumer.store.", "remoting.protocol.header.",
    };
    static final String[] WORDS = {
        "T", "%RETRY%g", "broker-a", "1.1.1.1:10911", "a b", "\"", "\\", "/", "\u0000\u0001\u001f", "\b\t\n\f\r", "\u007f\u0085\u009f",
        "\u00a0\u00e9", "\u2028\u2029", "\ufeff", "中文", "\ud83d\ude00", "{1:2}", ",{\"a\":1}:", "'", "",
    };

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = answer(line.split(" "));
            } catch (Throwable refused) {
                answer = "! " + String.valueOf(refused).replace('\n', ' ').replace('\r', ' ');
            }
            out.println(answer);
        }
        out.flush();
        System.exit(0);
    }

    static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "known":
                return classNamed(words[1]) == null ? "no" : "yes";
            case "reread":
                return written(RemotingSerializable.decode(HEX.parseHex(words[2]), classNamed(words[1])));
            case "random":
                Random random = new Random(Long.parseLong(words[2]));
                Set<String> nullable = Set.of(words[4].split(","));
                return written(new Filler(random, Integer.parseInt(words[3]), nullable).make(classNamed(words[1])));
            case "inflate":
                return written(inflated(HEX.parseHex(words[1]), Integer.parseInt(words[2])));
            case "deflate":
                Object plain = RemotingSerializable.decode(HEX.parseHex(words[1]), classNamed("RegisterBrokerBody"));
                return HEX.formatHex((byte[]) plain.getClass().getMethod("encode", boolean.class).invoke(plain, true));
            case "properties":
                return properties(words.length == 1 ? "" : new String(HEX.parseHex(words[1]), StandardCharsets.UTF_8));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    static String properties(String text) {
        StringJoiner pairs = new StringJoiner(",");
        MixAll.string2Properties(text).forEach((key, value) -> pairs.add(units(key) + "=" + units(value)));
        return pairs.toString();
    }

    static String units(Object text) {
        return HEX.formatHex(text.toString().getBytes(StandardCharsets.UTF_16BE));
    }

    static String written(Object value) {
        return HEX.formatHex(RemotingSerializable.encode(value));
    }

    static final Map<String, Class<?>> CLASSES = new HashMap<>();

    static Class<?> classNamed(String name) {
        return CLASSES.computeIfAbsent(name, wanted -> {
            for (String each : PACKAGES) {
                try {
                    return Class.forName(ROOT + each + wanted);
                } catch (ClassNotFoundException elsewhere) {
                    continue;
                }
            }
            return null;
        });
    }

    static Object inflated(byte[] data, int version) throws Exception {
        for (Method method : classNamed("RegisterBrokerBody").getMethods()) {
            if (!method.getName().equals("decode") || method.getParameterCount() < 2 || method.getParameterTypes()[1] != boolean.class) {
                continue;
            }
            return method.getParameterCount() == 2
                ? method.invoke(null, data, true)
                : method.invoke(null, data, true, MQVersion.value2Version(version));
        }
        throw new IllegalStateException("no RegisterBrokerBody.decode(byte[], boolean)");
    }

    /** Random values for any bean, by its fields. */
    static final class Filler {
        final Random random;
        final int size;
        final Set<String> nullable;

        Filler(Random random, int size, Set<String> nullable) {
            this.random = random;
            this.size = size;
            this.nullable = nullable;
        }

        Object make(Type type) throws Exception {
            Class<?> raw = (Class<?>) (type instanceof ParameterizedType p ? p.getRawType() : type);
            if (raw == String.class) {
                return text();
            } else if (raw == int.class || raw == Integer.class) {
                return random.nextInt(4) == 0 ? random.nextInt() : random.nextInt(32);
            } else if (raw == long.class || raw == Long.class) {
                return number();
            } else if (raw == AtomicLong.class) {
                return new AtomicLong(number());
            } else if (raw == boolean.class || raw == Boolean.class) {
                return random.nextBoolean();
            } else if (raw == double.class) {
                return random.nextInt(8) == 0 ? Double.NaN : Math.round(random.nextGaussian() * 1e6) / 64.0;
            } else if (raw.isEnum()) {
                Object[] all = raw.getEnumConstants();
                return all[random.nextInt(all.length)];
            } else if (raw.isArray()) {
                return array(raw.getComponentType());
            } else if (raw == Properties.class) {
                return properties();
            } else if (Map.class.isAssignableFrom(raw)) {
                return map(raw, (ParameterizedType) type);
            } else if (Collection.class.isAssignableFrom(raw)) {
                return collection(raw, (ParameterizedType) type);
            }
            return bean(raw);
        }

        Object bean(Class<?> raw) throws Exception {
            Constructor<?> constructor = raw.getConstructors()[0];
            for (Constructor<?> each : raw.getConstructors()) {
                constructor = each.getParameterCount() == 0 ? each : constructor;
            }
            Object[] arguments = new Object[constructor.getParameterCount()];
            for (int at = 0; at < arguments.length; at++) {
                arguments[at] = make(constructor.getGenericParameterTypes()[at]);
            }
            Object bean = constructor.newInstance(arguments);
            for (Class<?> each = raw; each != Object.class; each = each.getSuperclass()) {
                for (Field field : each.getDeclaredFields()) {
                    int modifiers = field.getModifiers();
                    if (Modifier.isStatic(modifiers) || Modifier.isFinal(modifiers) || Modifier.isTransient(modifiers)) {
                        continue;
                    }
                    if (field.getName().equals("filterClassSource")) {
                        continue;
                    }
                    field.setAccessible(true);
                    boolean none = random.nextInt(4) == 0 && !field.getType().isPrimitive()
                        && nullable.contains(each.getSimpleName() + "." + field.getName());
                    field.set(bean, none ? null : make(field.getGenericType()));
                }
            }
            return bean;
        }

        Object array(Class<?> item) throws Exception {
            Object array = Array.newInstance(item, random.nextInt(size + 1));
            for (int at = 0; at < Array.getLength(array); at++) {
                Array.set(array, at, make(item));
            }
            return array;
        }

        Properties properties() throws Exception {
            Properties properties = new Properties();
            for (int left = random.nextInt(size + 1); left > 0; left--) {
                properties.setProperty((String) key(String.class), text());
            }
            return properties;
        }

        @SuppressWarnings("unchecked")
        Map<Object, Object> map(Class<?> raw, ParameterizedType type) throws Exception {
            Map<Object, Object> map = raw == Map.class ? new HashMap<>()
                : raw == ConcurrentMap.class ? new ConcurrentHashMap<>()
                : (Map<Object, Object>) raw.getConstructor().newInstance();
            Type[] of = type.getActualTypeArguments();
            for (int left = random.nextInt(size + 1); left > 0; left--) {
                map.put(key(of[0]), make(of[1]));
            }
            return map;
        }

        @SuppressWarnings("unchecked")
        Collection<Object> collection(Class<?> raw, ParameterizedType type) throws Exception {
            Collection<Object> items = raw == List.class ? new ArrayList<>()
                : raw == Set.class ? new HashSet<>()
                : (Collection<Object>) raw.getConstructor().newInstance();
            for (int left = random.nextInt(size + 1); left > 0; left--) {
                items.add(make(type.getActualTypeArguments()[0]));
            }
            return items;
        }

        /** fastjson2 2.0.59 cannot read its own keys that have both an escape and a surrogate pair. */
        Object key(Type type) throws Exception {
            return type == String.class ? text().replace("\ud83d\ude00", "") : make(type);
        }

        long number() {
            return random.nextInt(4) == 0 ? random.nextLong() : random.nextInt(1 << 20);
        }

        String text() {
            StringBuilder text = new StringBuilder();
            for (int left = 1 + random.nextInt(3); left > 0; left--) {
                text.append(WORDS[random.nextInt(random.nextInt(3) == 0 ? WORDS.length : 5)]);
            }
            return text.append(random.nextInt(1_000_000_000)).toString();
        }
    }
}
