package io.github.headrace.push;

import java.io.Closeable;

/** Where a writer puts its chunks itself. It is used by several threads at once. */
public interface Bucket extends Closeable {
    /**
     * Puts a new object, with a checksum that the service verifies. It is durable on return. If an
     * object is there already, an earlier try of the same call has put it: that is no error. After an
     * exception that is {@link HeadraceException#temporary()} the chunk is put again, with another key.
     */
    void putNew(String key, byte[] data) throws HeadraceException, InterruptedException;

    @Override
    void close();

    /** Opens a bucket. */
    interface Opener {
        /** {@code url} is the {@code s3://bucket/prefix} that the master names; keys are below it. */
        Bucket open(String url) throws HeadraceException;
    }
}
