package io.github.headrace.push;

/** The answer to a commit. */
public final class Committed {
    private final boolean already;
    private final long records;

    Committed(boolean already, long records) {
        this.already = already;
        this.records = records;
    }

    /** True if the transaction was visible before: nothing was added now. */
    public boolean already() {
        return already;
    }

    /** Records of the transaction as it is visible. */
    public long records() {
        return records;
    }

    @Override
    public String toString() {
        return records + " records" + (already ? ", visible before" : "");
    }
}
