package io.github.headrace.flink;

import io.github.headrace.push.PushRecord;
import java.io.Serializable;
import org.apache.flink.api.common.serialization.SerializationSchema;

/**
 * Makes a record of an element of the stream.
 *
 * @param <T> the elements
 */
@FunctionalInterface
public interface HeadraceRecordSerializer<T> extends Serializable {
    /** Is called once before the first element. */
    default void open(SerializationSchema.InitializationContext context) throws Exception {}

    /**
     * The record, or null if the element is to be left out.
     *
     * @param timestamp the element's event time in milliseconds since 1970, or null
     */
    PushRecord serialize(T element, Long timestamp) throws Exception;

    /** Records whose value a schema of Flink writes, with the element's event time. If the schema writes null, so is the value. */
    static <T> HeadraceRecordSerializer<T> of(SerializationSchema<? super T> value) {
        return of(value, null);
    }

    /** The same, with a key that another schema writes; null: without one. */
    static <T> HeadraceRecordSerializer<T> of(SerializationSchema<? super T> value, SerializationSchema<? super T> key) {
        return new SchemaSerializer<>(value, key);
    }
}
