package io.github.headrace.flink;

import io.github.headrace.push.PushRecord;
import java.util.Objects;
import org.apache.flink.api.common.serialization.SerializationSchema;

/** Records by Flink's own schemas. */
final class SchemaSerializer<T> implements HeadraceRecordSerializer<T> {
    private static final long serialVersionUID = 1L;

    private final SerializationSchema<? super T> value;
    private final SerializationSchema<? super T> key;

    SchemaSerializer(SerializationSchema<? super T> value, SerializationSchema<? super T> key) {
        this.value = Objects.requireNonNull(value, "value");
        this.key = key;
    }

    @Override
    public void open(SerializationSchema.InitializationContext context) throws Exception {
        value.open(context);
        if (key != null) {
            key.open(context);
        }
    }

    @Override
    public PushRecord serialize(T element, Long timestamp) {
        byte[] bytes = value.serialize(element); // null: what the format `raw` makes of a NULL
        PushRecord r = (bytes == null ? PushRecord.withoutValue() : PushRecord.of(bytes)).withKey(key == null ? null : key.serialize(element));
        return timestamp == null ? r : r.withTime(timestamp);
    }
}
