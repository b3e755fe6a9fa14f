package io.github.headrace.push;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Objects;
import java.util.zip.CRC32;

/**
 * A transaction that is durable at the master and not visible yet: what any process needs to commit
 * it with {@link Pusher#commit(Staged)}. It goes into the state of an engine.
 */
public final class Staged implements Serializable {
    private static final long serialVersionUID = 1L;

    private final String transaction;
    private final String[] locators;
    private final long records;
    private final long bytes;

    /** Put together again from an engine's state. */
    public Staged(String transaction, List<String> locators, long records, long bytes) {
        this.transaction = Objects.requireNonNull(transaction, "transaction");
        this.locators = locators.toArray(new String[0]);
        this.records = records;
        this.bytes = bytes;
    }

    /** The transaction's id. */
    public String transaction() {
        return transaction;
    }

    /** Names of its chunks, in the order in which they become visible. */
    public List<String> locators() {
        return List.of(locators);
    }

    /** How many records it has. */
    public long records() {
        return records;
    }

    /** Bytes of its records before compression. */
    public long bytes() {
        return bytes;
    }

    /** CRC-32 of all of the above: it tells whether stored state is what it was. */
    public int checksum() {
        CRC32 sum = new CRC32();
        sum.update((transaction + "\n" + String.join("\n", locators) + "\n" + records + "\n" + bytes).getBytes(StandardCharsets.UTF_8));
        return (int) sum.getValue();
    }

    @Override
    public boolean equals(Object o) {
        if (!(o instanceof Staged)) {
            return false;
        }
        Staged s = (Staged) o;
        return transaction.equals(s.transaction) && locators().equals(s.locators()) && records == s.records && bytes == s.bytes;
    }

    @Override
    public int hashCode() {
        return transaction.hashCode();
    }

    @Override
    public String toString() {
        return "transaction " + transaction + " (" + records + " records in " + locators.length + " chunks)";
    }
}
