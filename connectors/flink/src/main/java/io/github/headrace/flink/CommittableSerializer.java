package io.github.headrace.flink;

import io.github.headrace.push.Staged;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;

/**
 * The form of a committable in checkpoints and savepoints. Version 1: dataset, transaction, records,
 * bytes, number of chunks, their locators, CRC-32 of all that. A later version reads all earlier ones.
 */
final class CommittableSerializer implements SimpleVersionedSerializer<HeadraceCommittable> {
    private static final int VERSION = 1;

    @Override
    public int getVersion() {
        return VERSION;
    }

    @Override
    public byte[] serialize(HeadraceCommittable c) throws IOException {
        Staged s = c.staged();
        DataOutputSerializer out = new DataOutputSerializer(256);
        out.writeUTF(c.dataset());
        out.writeUTF(s.transaction());
        out.writeLong(s.records());
        out.writeLong(s.bytes());
        out.writeInt(s.locators().size());
        for (String l : s.locators()) {
            out.writeUTF(l);
        }
        out.writeInt(sum(out.getSharedBuffer(), out.length()));
        return out.getCopyOfBuffer();
    }

    @Override
    public HeadraceCommittable deserialize(int version, byte[] b) throws IOException {
        if (version != VERSION) {
            throw new IOException("a transaction in the checkpoint has form " + version + ", and this connector knows " + VERSION
                + ": use the connector's version that wrote it, or a newer one");
        }
        DataInputDeserializer in = new DataInputDeserializer(b);
        String dataset = in.readUTF();
        String transaction = in.readUTF();
        long records = in.readLong();
        long bytes = in.readLong();
        int chunks = in.readInt();
        if (chunks < 0 || chunks > b.length / 2) { // a locator has two bytes of length
            throw damaged(transaction);
        }
        List<String> locators = new ArrayList<>(chunks);
        for (int i = 0; i < chunks; i++) {
            locators.add(in.readUTF());
        }
        int length = in.getPosition();
        if (in.readInt() != sum(b, length) || in.available() != 0) {
            throw damaged(transaction);
        }
        return new HeadraceCommittable(dataset, new Staged(transaction, locators, records, bytes));
    }

    private static int sum(byte[] b, int length) {
        CRC32 crc = new CRC32();
        crc.update(b, 0, length);
        return (int) crc.getValue();
    }

    private static IOException damaged(String transaction) {
        return new IOException("transaction " + transaction + " in the checkpoint does not have its checksum: the checkpoint is damaged; restore an earlier one");
    }
}
