package bench.common;

import java.nio.charset.StandardCharsets;
import java.util.UUID;

import tools.jackson.databind.ObjectReader;

/** One posting, with the id that makes a second delivery recognisable. */
public record Event(UUID id, int account, long amount) {

    /** The header with the id, as text. */
    public static final String ID_HEADER = "_watermill_message_uuid";

    private static final ObjectReader VALUES = Json.lenient(Value.class);

    private record Value(int account, long amount) {
    }

    public static Event decode(byte[] id, byte[] value) {
        Value v = VALUES.readValue(value);
        return new Event(UUID.fromString(new String(id, StandardCharsets.US_ASCII)), v.account(), v.amount());
    }
}
