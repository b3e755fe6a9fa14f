package io.github.headrace.push;

import io.github.headrace.v1.LayoutReply;

/** How a dataset wants its records. */
public final class Layout {
    private final LayoutReply reply;

    Layout(LayoutReply reply) {
        this.reply = reply;
    }

    /** A record with a key goes to CRC-32 of the key modulo this. */
    public int partitions() {
        return reply.getPartitions();
    }

    /** The best size of a chunk in bytes, before compression. */
    public long chunkBytes() {
        return reply.getChunkBytes();
    }

    /** The most bytes of a chunk, before and after compression. */
    public long maxChunkBytes() {
        return reply.getMaxChunkBytes();
    }

    /** The most bytes of a value. */
    public long maxRecord() {
        return reply.getMaxRecord();
    }

    /** True if no record may follow. */
    public boolean ended() {
        return reply.getEnded();
    }

    /** A transaction must be committed within this time after its first chunk was staged. */
    public long stageTtlMillis() {
        return reply.getStageTtlMs();
    }

    /** JSON Pointer to the key of a record that has no key of its own; empty: none. */
    public String key() {
        return reply.getKey();
    }
}
