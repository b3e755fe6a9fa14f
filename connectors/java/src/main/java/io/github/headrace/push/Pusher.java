package io.github.headrace.push;

import com.google.common.util.concurrent.ListenableFuture;
import com.google.protobuf.ByteString;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.UnknownFieldSet;
import io.github.headrace.push.HeadraceException.Kind;
import io.github.headrace.v1.CommitRequest;
import io.github.headrace.v1.CommitReply;
import io.github.headrace.v1.EndRequest;
import io.github.headrace.v1.LandingFull;
import io.github.headrace.v1.LandingGrpc;
import io.github.headrace.v1.LandedReply;
import io.github.headrace.v1.LandedRequest;
import io.github.headrace.v1.LayoutReply;
import io.github.headrace.v1.LayoutRequest;
import io.github.headrace.v1.StageRequest;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.okhttp.OkHttpChannelBuilder;
import io.grpc.protobuf.StatusProto;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** Pushes to one dataset, over one connection. It may be used by many threads. */
public final class Pusher implements AutoCloseable {
    private static final long FIRST_WAIT_MS = 50;
    private static final long MOST_WAIT_MS = 2000;

    /** Bytes of a commit (PusherMessage of internal/link). The master ends the connection of a pusher that sends more. */
    static final int MOST_COMMIT = 65 << 20;

    /** Chunks of a commit, as in master/landing. */
    static final int MOST_CHUNKS = 250_000;

    private final String dataset;
    private final ManagedChannel channel;
    private final LandingGrpc.LandingFutureStub api;
    private final ExecutorService senders;
    private final Compression compression;
    private final Consumer<String> onWait;
    private final long patienceNanos;
    private final AtomicLong waitedNanos = new AtomicLong();
    private final Bucket.Opener upload; // null: chunks go to the master
    private final Map<String, Bucket> buckets = new HashMap<>(); // by URL; guarded by itself
    volatile int mostCommit = MOST_COMMIT; // changed by tests
    volatile int mostChunks = MOST_CHUNKS; // the same
    private volatile boolean closed;
    private volatile Told told;

    private Pusher(Builder b) {
        dataset = b.dataset;
        compression = b.compression;
        onWait = b.onWait;
        upload = b.upload;
        // A long counts 292 years of nanoseconds.
        patienceNanos = b.patience == null || b.patience.toDays() > 100_000 ? Long.MAX_VALUE : b.patience.toNanos();
        channel = OkHttpChannelBuilder.forAddress("127.0.0.1", 7070) // ProvenSockets knows the address
            .socketFactory(new ProvenSockets(b.target))
            .usePlaintext() // TLS is on the sockets already
            .proxyDetector(address -> null) // a job's own network, never the way to the internet
            .keepAliveTime(10, TimeUnit.SECONDS)
            .keepAliveTimeout(5, TimeUnit.SECONDS)
            .userAgent("headrace-java")
            .build();
        api = LandingGrpc.newFutureStub(channel);
        senders = Executors.newFixedThreadPool(Transaction.STAGING, r -> {
            Thread t = new Thread(r, "headrace-push " + dataset);
            t.setDaemon(true);
            return t;
        });
    }

    /** Asks the master how the dataset wants its records. */
    public static Pusher open(Target target, String dataset) throws HeadraceException, InterruptedException {
        return builder(target, dataset).open();
    }

    /** A builder of a pusher. */
    public static Builder builder(Target target, String dataset) {
        return new Builder(target, dataset);
    }

    /** What can be set of a pusher. */
    public static final class Builder {
        private final Target target;
        private final String dataset;
        private Compression compression = Compression.ZLIB;
        private Consumer<String> onWait = reason -> { };
        private Duration patience;
        private Bucket.Opener upload;

        private Builder(Target target, String dataset) {
            this.target = Objects.requireNonNull(target, "target");
            this.dataset = Objects.requireNonNull(dataset, "dataset");
        }

        /** How chunks are compressed; the default is {@link Compression#ZLIB}. */
        public Builder compression(Compression c) {
            compression = Objects.requireNonNull(c, "compression");
            return this;
        }

        /** Is called before each wait with the reason, by several threads at once. */
        public Builder onWait(Consumer<String> f) {
            onWait = Objects.requireNonNull(f, "onWait");
            return this;
        }

        /** How long one call waits for a master that is away or full. The default is for ever. */
        public Builder patience(Duration d) {
            patience = d;
            return this;
        }

        /**
         * This process puts chunks into the dataset's bucket itself, and only the commit goes to the
         * master. The master must have a bucket ({@code landing_storage: s3://...}). It needs
         * {@code software.amazon.awssdk:s3} and {@code url-connection-client} on the class path, and
         * takes credentials, region and endpoint where the AWS SDK looks for them.
         */
        public Builder upload() {
            return upload(Uploader::openS3);
        }

        /** {@link #upload()} with a client of the caller's own. */
        public Builder upload(Bucket.Opener open) {
            upload = Objects.requireNonNull(open, "open");
            return this;
        }

        /** Opens it. */
        public Pusher open() throws HeadraceException, InterruptedException {
            Pusher p = new Pusher(this);
            try {
                p.ask();
                return p;
            } catch (Throwable e) { // also errors of a caller's opener
                p.close();
                throw e;
            }
        }
    }

    /**
     * What the master told of the dataset. A transaction keeps what it began with. Later the dataset
     * may be deleted and applied again, or its chunks may go to another bucket.
     */
    static final class Told {
        final Layout layout;
        final Uploader uploader; // null: chunks go to the master
        private volatile boolean doubtful; // a call has failed since

        private Told(Layout layout, Uploader uploader) {
            this.layout = layout;
            this.uploader = uploader;
        }
    }

    /**
     * How the dataset wants a transaction that begins now. The master is asked again after a call has
     * failed for good, because that may be the reason. Otherwise a writer with a bucket needs no
     * master until its commit.
     */
    Told told() throws HeadraceException, InterruptedException {
        Told t = told;
        return t.doubtful ? ask() : t;
    }

    private Told ask() throws HeadraceException, InterruptedException {
        LayoutRequest request = LayoutRequest.newBuilder().setDataset(dataset).build();
        LayoutReply reply = again(() -> api.layout(request));
        Told t = new Told(new Layout(reply), upload == null ? null : Uploader.of(dataset, reply, this::bucket));
        told = t;
        return t;
    }

    private Bucket bucket(String url) throws HeadraceException {
        synchronized (buckets) {
            if (closed) {
                throw new HeadraceException(Kind.UNAVAILABLE, "the pusher of dataset " + dataset + " was closed", null);
            }
            Bucket b = buckets.get(url);
            if (b == null) {
                b = upload.open(url);
                buckets.put(url, b);
            }
            return b;
        }
    }

    /** How the dataset wants its records, as the master told it last: when this was opened, or after a call had failed. */
    public Layout layout() {
        return told.layout;
    }

    /** The dataset's name. */
    public String dataset() {
        return dataset;
    }

    /** How long calls have waited so far because the master was away or full, in all threads. */
    public long waitedMillis() {
        return TimeUnit.NANOSECONDS.toMillis(waitedNanos.get());
    }

    Compression compression() {
        return compression;
    }

    /** Begins a transaction. The id is unique for good. Nothing is sent. */
    public Transaction begin(String id) {
        return new Transaction(this, Objects.requireNonNull(id, "id"));
    }

    /** Begins a transaction with an id that nobody has. */
    public Transaction begin() {
        return begin("push-" + UUID.randomUUID());
    }

    /** Runs it in a thread of the pusher, or here once the pusher is closed: it must not be dropped. */
    void inBackground(Runnable r) {
        try {
            senders.execute(r);
        } catch (RejectedExecutionException e) {
            r.run();
        }
    }

    private static HeadraceException wasClosed(String transaction) {
        return new HeadraceException(Kind.UNAVAILABLE, "the pusher was closed while transaction " + transaction + " was being staged", null);
    }

    String stage(Transaction t, Uploader uploader, int partition, byte[] chunk) throws HeadraceException, InterruptedException {
        if (closed) {
            throw wasClosed(t.id());
        }
        if (uploader != null) {
            return retry(() -> uploader.put(t.id(), partition, chunk), t::givenUp);
        }
        StageRequest request = StageRequest.newBuilder().setDataset(dataset).setTransaction(t.id())
            .setPartition(partition).setChunk(ByteString.copyFrom(chunk)).build();
        return again(() -> api.stage(request), t::givenUp).getLocator();
    }

    /** The next transaction asks the master again how the dataset wants it: a limit may have been raised since. */
    void doubt() {
        told.doubtful = true;
    }

    /** Makes a transaction visible that was staged, by whichever process. */
    public Committed commit(Staged staged) throws HeadraceException, InterruptedException {
        CommitRequest request = CommitRequest.newBuilder().setDataset(dataset).setTransaction(staged.transaction())
            .addAllLocators(staged.locators()).build();
        if (request.getSerializedSize() > mostCommit || staged.locators().size() > mostChunks) {
            throw tooMany(staged.transaction(), staged.locators().size());
        }
        CommitReply reply = again(() -> api.commit(request));
        if (reply.getRecords() != staged.records()) {
            throw new HeadraceException(Kind.REFUSED, staged + " is visible with " + reply.getRecords()
                + " records: another producer has used the same id. Give each producer ids of its own", null);
        }
        return new Committed(reply.getAlready(), reply.getRecords());
    }

    /** Bytes of the commit of a transaction so far, with one more chunk. */
    int sizeOfCommit(String transaction, int before, String locator) {
        CommitRequest.Builder more = CommitRequest.newBuilder().addLocators(locator);
        return before + (before == 0 ? more.setDataset(dataset).setTransaction(transaction) : more).build().getSerializedSize();
    }

    HeadraceException tooMany(String transaction, int chunks) {
        doubt();
        return new HeadraceException(Kind.INVALID, "transaction " + transaction + " has " + chunks + " chunks, and a commit has at most "
            + mostChunks + " chunks and " + (mostCommit >> 20) + " MiB: make landing.chunk in the spec larger and apply that, or push fewer records in a transaction", null);
    }

    /** What is visible of a transaction, or null: nothing. Ask before its records are sent again. */
    public Committed landed(String transaction) throws HeadraceException, InterruptedException {
        LandedRequest request = LandedRequest.newBuilder().setDataset(dataset).setTransaction(transaction).build();
        LandedReply reply = again(() -> api.landed(request));
        return reply.getLanded() ? new Committed(true, reply.getRecords()) : null;
    }

    /** Says that no record follows, from any producer. The dataset's spec must allow it. */
    public void end() throws HeadraceException, InterruptedException {
        EndRequest request = EndRequest.newBuilder().setDataset(dataset).build();
        again(() -> api.end(request));
    }

    private <T> T again(Supplier<ListenableFuture<T>> call) throws HeadraceException, InterruptedException {
        return again(call, () -> false);
    }

    private <T> T again(Supplier<ListenableFuture<T>> call, BooleanSupplier givenUp) throws HeadraceException, InterruptedException {
        return retry(() -> {
            ListenableFuture<T> f = call.get();
            try {
                return f.get();
            } catch (InterruptedException interrupted) {
                f.cancel(true);
                throw interrupted;
            } catch (ExecutionException failed) {
                throw explain(failed.getCause());
            }
        }, givenUp);
    }

    /** One try of something that may succeed later. */
    private interface Try<T> {
        T call() throws HeadraceException, InterruptedException;
    }

    /** Tries until the answer is anything but "later", or givenUp says that nobody needs the answer. */
    private <T> T retry(Try<T> call, BooleanSupplier givenUp) throws HeadraceException, InterruptedException {
        long began = System.nanoTime();
        for (long wait = FIRST_WAIT_MS;; wait = Math.min(2 * wait, MOST_WAIT_MS)) {
            HeadraceException e;
            try {
                return call.call();
            } catch (HeadraceException failed) {
                e = failed;
            }
            long pause = e.kind() == Kind.FULL ? Math.max(1, e.retryAfterMillis()) : wait;
            Told t = told;
            if (t != null && !e.temporary()) {
                doubt();
            }
            if (!e.temporary() || closed || givenUp.getAsBoolean() || System.nanoTime() - began + TimeUnit.MILLISECONDS.toNanos(pause) > patienceNanos) {
                throw e;
            }
            onWait.accept(e.getMessage());
            long from = System.nanoTime();
            try {
                Thread.sleep(pause);
            } finally {
                waitedNanos.addAndGet(System.nanoTime() - from);
            }
            channel.resetConnectBackoff(); // gRPC's own grows to minutes
        }
    }

    /** Says what a failed call means. */
    private HeadraceException explain(Throwable t) {
        for (Throwable c = t; c != null; c = c.getCause()) {
            if (c instanceof HeadraceException) { // of ProvenSockets
                HeadraceException e = (HeadraceException) c;
                return new HeadraceException(e.kind(), e.getMessage(), t);
            }
        }
        if (!(t instanceof StatusRuntimeException)) {
            return new HeadraceException(Kind.UNKNOWN, "dataset " + dataset + ": " + t, t);
        }
        Status status = ((StatusRuntimeException) t).getStatus();
        String text = status.getDescription() == null ? status.getCode() + (status.getCause() == null ? "" : ": " + status.getCause()) : status.getDescription();
        long retryAfter = -1;
        com.google.rpc.Status details = StatusProto.fromThrowable(t);
        if (details != null) {
            for (com.google.protobuf.Any any : details.getDetailsList()) {
                try {
                    if (any.is(LandingFull.class)) {
                        retryAfter = any.unpack(LandingFull.class).getRetryAfterMs();
                    } else if (any.getTypeUrl().endsWith("/headrace.v1.ErrorDetail")) {
                        text += hint(any.getValue());
                    }
                } catch (InvalidProtocolBufferException e) {
                    text += " (a detail of it cannot be read)";
                }
            }
        }
        return new HeadraceException(kindOf(status.getCode(), retryAfter >= 0), text, t, Math.max(0, retryAfter));
    }

    private static final int HINT_FIELD = 6; // of ErrorDetail in datasets.proto

    private static String hint(ByteString detail) throws InvalidProtocolBufferException {
        StringBuilder hints = new StringBuilder();
        for (ByteString b : UnknownFieldSet.parseFrom(detail).getField(HINT_FIELD).getLengthDelimitedList()) {
            hints.append("; ").append(b.toStringUtf8());
        }
        return hints.toString();
    }

    private static Kind kindOf(Status.Code code, boolean full) {
        switch (code) {
            case UNAVAILABLE:
                return Kind.UNAVAILABLE;
            case RESOURCE_EXHAUSTED:
                return full ? Kind.FULL : Kind.INVALID; // a message that is too large stays so
            case NOT_FOUND:
                return Kind.NOT_FOUND;
            case INVALID_ARGUMENT:
                return Kind.INVALID;
            case FAILED_PRECONDITION:
                return Kind.REFUSED;
            case PERMISSION_DENIED:
            case UNAUTHENTICATED:
                return Kind.DENIED;
            default:
                return Kind.UNKNOWN;
        }
    }

    /** Ends the connection. What was not committed is not visible. */
    @Override
    public void close() {
        closed = true;
        List<Runnable> waiting = senders.shutdownNow();
        channel.shutdownNow();
        synchronized (buckets) {
            buckets.values().forEach(Bucket::close);
            buckets.clear();
        }
        waiting.forEach(Runnable::run); // each tells its transaction, which may be waiting for it, that it was not sent
    }
}
