package io.github.headrace.push;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.zip.CRC32;
import java.util.zip.Deflater;

/**
 * Gathers records and makes chunks of them (docs/LANDING.md, "The form of a chunk"). The vectors in
 * api/vectors/chunks.json hold for it and for internal/chunk.
 */
final class ChunkBuilder {
    static final int HEADER = 28;
    private static final byte[] MAGIC = {'H', 'R', 'C', '1'};
    private static final int HAS_KEY = 1;
    private static final int IS_NULL = 2;
    private static final int HAS_TIME = 4;
    private static final int HAS_HEADERS = 8;

    private static final int FIRST = 256; // bytes

    private byte[] raw = new byte[FIRST];
    private int size;
    private int records;

    int size() {
        return size;
    }

    int records() {
        return records;
    }

    /** The bytes of memory that it holds. */
    int held() {
        return raw.length;
    }

    /** The most bytes that a record takes beside its key, value and headers. */
    static long sizeOf(PushRecord r) {
        long n = 32L + (r.key() == null ? 0 : r.key().length) + (r.value() == null ? 0 : r.value().length);
        for (Map.Entry<byte[], byte[]> h : r.headers()) {
            n += 20L + h.getKey().length + h.getValue().length;
        }
        return n;
    }

    void add(PushRecord r) {
        int flags = 0;
        if (r.key() != null) {
            flags |= HAS_KEY;
        }
        if (r.value() == null) {
            flags |= IS_NULL;
        }
        if (r.time() != 0) {
            flags |= HAS_TIME;
        }
        if (!r.headers().isEmpty()) {
            flags |= HAS_HEADERS;
        }
        room(sizeOf(r));
        raw[size++] = (byte) flags;
        if (r.key() != null) {
            bytes(r.key());
        }
        if (r.time() != 0) {
            uvarint((r.time() << 1) ^ (r.time() >> 63));
        }
        if (!r.headers().isEmpty()) {
            uvarint(r.headers().size());
            for (Map.Entry<byte[], byte[]> h : r.headers()) {
                bytes(h.getKey());
                bytes(h.getValue());
            }
        }
        if (r.value() != null) {
            bytes(r.value());
        }
        records++;
    }

    private void room(long more) {
        if (size + more > raw.length) {
            long want = Math.max(size + more, 2L * raw.length);
            raw = Arrays.copyOf(raw, (int) Math.min(want, Integer.MAX_VALUE - 16));
        }
    }

    private void bytes(byte[] b) {
        uvarint(b.length);
        System.arraycopy(b, 0, raw, size, b.length);
        size += b.length;
    }

    private void uvarint(long x) {
        while ((x & ~0x7fL) != 0) {
            raw[size++] = (byte) (x | 0x80);
            x >>>= 7;
        }
        raw[size++] = (byte) x;
    }

    /** Gives a chunk of what was gathered, and begins anew. */
    byte[] chunk(Compression compression) {
        byte[] body = compression == Compression.ZLIB ? deflate() : null;
        Compression used = Compression.ZLIB;
        if (body == null || body.length >= size) {
            used = Compression.NONE;
            body = Arrays.copyOf(raw, size);
        }
        ByteBuffer out = ByteBuffer.allocate(HEADER + body.length).order(ByteOrder.LITTLE_ENDIAN);
        out.put(MAGIC).put(used.codec).put(new byte[3]);
        out.putInt(records).putInt(size).putInt(body.length).putInt(crc(body, body.length));
        out.putInt(crc(out.array(), HEADER - 4)).put(body);
        size = 0;
        records = 0;
        raw = new byte[FIRST]; // a transaction has a builder for each partition, and there may be many
        return out.array();
    }

    private byte[] deflate() {
        Deflater d = new Deflater(Deflater.BEST_SPEED);
        try {
            d.setInput(raw, 0, size);
            d.finish();
            ByteArrayOutputStream out = new ByteArrayOutputStream(size / 2 + 64);
            byte[] part = new byte[8192];
            while (!d.finished()) {
                out.write(part, 0, d.deflate(part));
            }
            return out.toByteArray();
        } finally {
            d.end();
        }
    }

    static int crc(byte[] b, int length) {
        CRC32 sum = new CRC32();
        sum.update(b, 0, length);
        return (int) sum.getValue();
    }

    /**
     * The fallback of {@link #partitionOf} for the first chunk of a transaction. It differs between
     * transactions: otherwise all transactions that are smaller than a chunk would go to partition 0.
     */
    static int firstOf(String transaction) {
        byte[] id = transaction.getBytes(StandardCharsets.UTF_8);
        return crc(id, id.length) & Integer.MAX_VALUE;
    }

    /** Where a record with this key goes; one without a key goes to {@code fallback}. */
    static int partitionOf(byte[] key, int partitions, int fallback) {
        if (key == null) {
            return Math.floorMod(fallback, partitions);
        }
        return (int) (Integer.toUnsignedLong(crc(key, key.length)) % partitions);
    }
}
