package io.github.headrace.flink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.headrace.push.Staged;
import java.io.IOException;
import java.util.Base64;
import java.util.List;
import org.junit.jupiter.api.Test;

class CommittableSerializerTest {
    private static final CommittableSerializer FORM = new CommittableSerializer();
    private static final HeadraceCommittable ONE = new HeadraceCommittable("clicks",
        new Staged("flink/3/0/5f0c/17", List.of("1 s0/0/1/a-2-b 99 7 0000beef", "1 s0/1/1/a-2-c 77 5 0000cafe"), 12, 4711));

    @Test
    void aCommittableIsReadAsItWasWritten() throws IOException {
        assertEquals(ONE, FORM.deserialize(1, FORM.serialize(ONE)));
        HeadraceCommittable none = new HeadraceCommittable("c", new Staged("t", List.of(), 0, 0));
        assertEquals(none, FORM.deserialize(1, FORM.serialize(none)));
    }

    /** Version 1 has written these bytes. Every later version must read its savepoints. */
    @Test
    void aCommittableOfAnOlderSavepointIsRead() throws IOException {
        assertEquals(ONE, FORM.deserialize(1, Base64.getDecoder().decode(
            "AAZjbGlja3MAEWZsaW5rLzMvMC81ZjBjLzE3AAAAAAAAAAwAAAAAAAASZwAAAAIAHDEgczAvMC8xL2EtMi1iIDk5IDcgMDAwMGJlZWYAHDEgczAvMS8xL2EtMi1jIDc3IDUgMDAwMGNhZmV32Ak3")));
    }

    @Test
    void aDamagedCommittableIsRefused() throws IOException {
        byte[] good = FORM.serialize(ONE);
        for (int i = 0; i < good.length; i++) {
            byte[] bad = good.clone();
            bad[i] ^= 0x01;
            assertThrows(IOException.class, () -> FORM.deserialize(1, bad), "byte " + i);
        }
        assertTrue(assertThrows(IOException.class, () -> FORM.deserialize(2, good)).getMessage().contains("form 2"));
    }
}
