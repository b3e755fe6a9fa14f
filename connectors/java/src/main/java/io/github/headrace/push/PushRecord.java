package io.github.headrace.push;

import java.nio.charset.StandardCharsets;
import java.util.AbstractMap.SimpleImmutableEntry;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** One record: a value, and around it a key, a time and headers. Arrays are not copied: do not change them. */
public final class PushRecord {
    private final byte[] key;
    private final byte[] value;
    private final long time;
    private final List<Map.Entry<byte[], byte[]>> headers;

    private PushRecord(byte[] key, byte[] value, long time, List<Map.Entry<byte[], byte[]>> headers) {
        this.key = key;
        this.value = value;
        this.time = time;
        this.headers = headers;
    }

    /** A record without a key. A dataset with {@code landing.key} finds the key in the value. */
    public static PushRecord of(byte[] value) {
        return new PushRecord(null, Objects.requireNonNull(value, "value"), 0, List.of());
    }

    /** A record whose value is UTF-8 text. */
    public static PushRecord of(String value) {
        return of(value.getBytes(StandardCharsets.UTF_8));
    }

    /** A record whose value is null, and that has no key. */
    public static PushRecord withoutValue() {
        return new PushRecord(null, null, 0, List.of());
    }

    /** A record without a value: its key is deleted. */
    public static PushRecord deleted(byte[] key) {
        return new PushRecord(Objects.requireNonNull(key, "key"), null, 0, List.of());
    }

    /** The same with a key. Records with the same key go to the same partition, in order. */
    public PushRecord withKey(byte[] key) {
        return new PushRecord(key, value, time, headers);
    }

    /** The same with a time, in milliseconds since 1970; 0: not said. */
    public PushRecord withTime(long millis) {
        return new PushRecord(key, value, millis, headers);
    }

    /** The same with one more header. */
    public PushRecord withHeader(byte[] name, byte[] text) {
        List<Map.Entry<byte[], byte[]>> all = new ArrayList<>(headers);
        all.add(new SimpleImmutableEntry<>(Objects.requireNonNull(name, "name"), Objects.requireNonNull(text, "text")));
        return new PushRecord(key, value, time, List.copyOf(all));
    }

    /** The key, or null. */
    public byte[] key() {
        return key;
    }

    /** The value, or null. */
    public byte[] value() {
        return value;
    }

    /** Milliseconds since 1970; 0: not said. */
    public long time() {
        return time;
    }

    /** Names and texts beside the value, in order. */
    public List<Map.Entry<byte[], byte[]>> headers() {
        return headers;
    }
}
