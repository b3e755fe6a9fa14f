package io.github.headrace.push;

import io.github.headrace.push.HeadraceException.Kind;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;

/**
 * Records that become visible together. It is used by one thread. It holds one unsent chunk for
 * each partition, and at most {@link #STAGING} chunks that are on their way.
 */
public final class Transaction {
    /** How many chunks are sent at a time. */
    static final int STAGING = 4;

    /** Unsent bytes of all partitions; above it the largest is sent. */
    static final long MOST_UNSENT = 64 << 20;

    private final Pusher pusher;
    private final String id;
    private Pusher.Told told; // null: nothing was pushed yet
    private ChunkBuilder[] builders = {}; // of each partition
    private final Semaphore slots = new Semaphore(STAGING);
    private long unsent;
    private long records;
    private long bytes;
    private int next; // partition of the records without a key
    private boolean over; // nothing can be pushed any more
    private Staged whole; // null: not all of it is durable

    // Written by the threads that send.
    private final Object lock = new Object();
    private final List<String> locators = new ArrayList<>();
    private int staged;
    private int commitBytes;
    private IOException failure;

    Transaction(Pusher pusher, String id) {
        this.pusher = pusher;
        this.id = id;
        this.next = ChunkBuilder.firstOf(id);
    }

    /** Names the transaction. */
    public String id() {
        return id;
    }

    /** How many records were pushed. */
    public long records() {
        return records;
    }

    /** Bytes of the records that were pushed, before compression. */
    public long bytes() {
        return bytes;
    }

    /** Adds a record, and sends a chunk when one is full. It waits while too many are on their way. */
    public void push(PushRecord r) throws HeadraceException, InterruptedException {
        open();
        if (told == null) {
            told = pusher.told();
            builders = new ChunkBuilder[told.layout.partitions()];
        }
        Layout layout = told.layout;
        if (r.value() != null && r.value().length > layout.maxRecord()) {
            pusher.doubt();
            throw new HeadraceException(Kind.INVALID, "record " + records + " of transaction " + id + " has " + r.value().length
                + " bytes, and max_record of dataset " + pusher.dataset() + " is " + layout.maxRecord() + ": raise it in the spec and apply that", null);
        }
        PushRecord keyed = r.key() == null && !layout.key().isEmpty() && r.value() != null ? r.withKey(keyOf(r.value())) : r;
        int part = ChunkBuilder.partitionOf(keyed.key(), builders.length, next);
        ChunkBuilder b = builders[part];
        if (b == null) {
            b = new ChunkBuilder();
            builders[part] = b;
        }
        if (b.records() > 0 && b.size() + ChunkBuilder.sizeOf(keyed) > layout.maxChunkBytes()) {
            send(part);
        }
        int before = b.size();
        b.add(keyed);
        int more = b.size() - before;
        unsent += more;
        bytes += more;
        records++;
        if (b.size() >= layout.chunkBytes()) {
            send(part);
        } else if (unsent > MOST_UNSENT) {
            send(largest());
        }
    }

    private byte[] keyOf(byte[] value) throws HeadraceException {
        String pointer = told.layout.key();
        try {
            return JsonKey.find(pointer, value);
        } catch (JsonKey.Malformed e) {
            throw new HeadraceException(Kind.INVALID, "record " + records + " of transaction " + id + ": its key " + pointer
                + " cannot be found, because it is not JSON: " + e.getMessage(), e);
        }
    }

    private int largest() {
        int best = 0;
        for (int i = 0; i < builders.length; i++) {
            if (builders[i] != null && (builders[best] == null || builders[i].size() > builders[best].size())) {
                best = i;
            }
        }
        return best;
    }

    /** Stages the chunk of a partition in the background. */
    private void send(int part) throws HeadraceException, InterruptedException {
        failed();
        ChunkBuilder b = builders[part];
        slots.acquire();
        unsent -= b.size();
        byte[] chunk = b.chunk(pusher.compression());
        next++;
        int at;
        synchronized (lock) {
            at = locators.size();
            locators.add(null);
        }
        pusher.inBackground(() -> {
            try {
                if (!givenUp()) {
                    String locator = pusher.stage(this, told.uploader, part, chunk);
                    synchronized (lock) {
                        locators.set(at, locator);
                        staged++;
                        commitBytes = pusher.sizeOfCommit(id, commitBytes, locator);
                        if (commitBytes > pusher.mostCommit || staged > pusher.mostChunks) {
                            fail(pusher.tooMany(id, staged));
                        }
                    }
                }
            } catch (IOException e) {
                fail(e);
            } catch (InterruptedException e) {
                fail(new HeadraceException(Kind.UNAVAILABLE, "the pusher was closed while transaction " + id + " was being staged", e));
            } catch (RuntimeException | Error e) {
                fail(new HeadraceException(Kind.UNKNOWN, "transaction " + id + " could not be staged: " + e, e));
            } finally {
                slots.release();
            }
        });
    }

    private void fail(IOException e) {
        synchronized (lock) {
            if (failure == null) {
                failure = e;
            }
        }
    }

    private void failed() throws HeadraceException {
        synchronized (lock) {
            if (failure != null) {
                Kind kind = failure instanceof HeadraceException ? ((HeadraceException) failure).kind() : Kind.UNKNOWN;
                throw new HeadraceException(kind, failure.getMessage(), failure);
            }
        }
    }

    private void open() throws HeadraceException {
        failed();
        if (over) {
            throw new IllegalStateException("transaction " + id + " is over: begin another one");
        }
    }

    /**
     * Sends what is not sent yet and waits until all of it is durable. Nothing can be pushed after.
     * The result may be committed by another process. It can be called again, also after an interrupt.
     */
    public Staged stage() throws HeadraceException, InterruptedException {
        failed();
        if (whole != null) {
            return whole;
        }
        for (int part = 0; part < builders.length; part++) {
            if (builders[part] != null && builders[part].records() > 0) {
                send(part);
            }
        }
        over = true;
        slots.acquire(STAGING);
        slots.release(STAGING);
        failed();
        synchronized (lock) {
            whole = new Staged(id, locators, records, bytes);
        }
        return whole;
    }

    /**
     * Stages the rest and makes the transaction visible. After an error of the commit or an interrupt
     * it can be called again: the records become visible once. If a chunk could not be stored, each
     * call throws that error.
     */
    public Committed commit() throws HeadraceException, InterruptedException {
        return pusher.commit(stage());
    }

    /**
     * Gives the transaction up. Chunks that were staged are never seen: nobody names them in a
     * commit, and the master deletes them after {@code stage_ttl}.
     */
    public void abort() {
        over = true;
        for (int i = 0; i < builders.length; i++) {
            builders[i] = null;
        }
        unsent = 0;
        fail(new HeadraceException(Kind.REFUSED, "transaction " + id + " was given up", null));
    }

    /** True once it was given up: chunks that still wait are not sent. */
    boolean givenUp() {
        synchronized (lock) {
            return failure != null;
        }
    }
}
