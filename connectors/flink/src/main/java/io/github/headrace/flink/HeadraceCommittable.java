package io.github.headrace.flink;

import io.github.headrace.push.Staged;
import java.util.Objects;

/** A staged transaction of one writer on its way to the committer, through Flink's checkpoints. */
public final class HeadraceCommittable {
    private final String dataset;
    private final Staged staged;

    HeadraceCommittable(String dataset, Staged staged) {
        this.dataset = Objects.requireNonNull(dataset, "dataset");
        this.staged = Objects.requireNonNull(staged, "staged");
    }

    /** The dataset that it was staged for. */
    public String dataset() {
        return dataset;
    }

    /** Its id, records, bytes, chunks and checksum. */
    public Staged staged() {
        return staged;
    }

    @Override
    public boolean equals(Object o) {
        return o instanceof HeadraceCommittable && dataset.equals(((HeadraceCommittable) o).dataset) && staged.equals(((HeadraceCommittable) o).staged);
    }

    @Override
    public int hashCode() {
        return staged.hashCode();
    }

    @Override
    public String toString() {
        return staged + " of dataset " + dataset;
    }
}
