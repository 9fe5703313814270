package bench.common;

import tools.jackson.databind.DeserializationFeature;
import tools.jackson.databind.ObjectReader;
import tools.jackson.databind.json.JsonMapper;

/** Readers are safe for concurrent use. */
final class Json {

    private static final JsonMapper MAPPER = JsonMapper.builder()
            .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
            .disable(DeserializationFeature.FAIL_ON_NULL_FOR_PRIMITIVES) // what is left out is 0
            .build();

    private Json() {
    }

    static ObjectReader lenient(Class<?> type) {
        return MAPPER.readerFor(type);
    }
}
