package io.github.headrace.push;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** Chunks are made of records. */
class ChunkBuilderTest {
    /** A transaction has a builder for each partition. It bounds the records that they have, not the memory that they keep. */
    @Test
    void aBuilderKeepsNoMemoryOfTheChunksThatItGave() {
        ChunkBuilder b = new ChunkBuilder();
        for (Compression c : Compression.values()) {
            b.add(PushRecord.of(new byte[1 << 20]));
            assertTrue(b.held() >= 1 << 20);
            assertEquals(1 << 20, b.chunk(c).length, c == Compression.NONE ? 100 : 1 << 20);
            assertTrue(b.held() < 1 << 10, "it holds " + b.held() + " bytes");
            assertEquals(0, b.size());
        }
    }
}
