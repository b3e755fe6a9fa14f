package io.github.headrace.flink;

import io.github.headrace.push.Compression;
import io.github.headrace.push.HeadraceException;
import io.github.headrace.push.Target;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Objects;
import org.apache.flink.annotation.PublicEvolving;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.java.ClosureCleaner;
import org.apache.flink.connector.base.DeliveryGuarantee;

/**
 * Builds a {@link HeadraceSink}. Required: the dataset, a serializer, and the master's address or
 * its state folder.
 *
 * @param <T> the elements
 */
@PublicEvolving
public final class HeadraceSinkBuilder<T> {
    private static final int LONGEST_ID = 64; // of the 200 bytes of a transaction's id

    private final Target.Builder target = Target.builder();
    private String dataset;
    private String sinkId = "flink";
    private HeadraceRecordSerializer<? super T> serializer;
    private Compression compression = Compression.ZLIB;
    private DeliveryGuarantee guarantee = DeliveryGuarantee.EXACTLY_ONCE;
    private Duration commitInterval = Duration.ofSeconds(1);
    private boolean upload;

    HeadraceSinkBuilder() {}

    /** HOST:PORT of the master. */
    public HeadraceSinkBuilder<T> setMaster(String address) {
        target.master(address);
        return this;
    }

    /** The state folder of a master on this machine, instead of its address and a token. */
    public HeadraceSinkBuilder<T> setState(String folder) {
        target.state(folder);
        return this;
    }

    /** A file on each task manager whose first line is a token with the role {@code pusher}. */
    public HeadraceSinkBuilder<T> setTokenFile(String path) {
        target.tokenFile(path);
        return this;
    }

    /** The token itself. Prefer a file: this one lies in the job graph. */
    public HeadraceSinkBuilder<T> setToken(String token) {
        target.token(token);
        return this;
    }

    /** PEM files on each task manager: certificate, its key (PKCS 8), authority. Needed off loopback. */
    public HeadraceSinkBuilder<T> setTls(String cert, String key, String ca) {
        target.tls(cert, key, ca);
        return this;
    }

    /** The dataset; its spec has {@code landing:}. */
    public HeadraceSinkBuilder<T> setDataset(String dataset) {
        this.dataset = Objects.requireNonNull(dataset, "dataset");
        return this;
    }

    /** Names the sink in the ids of its transactions, at most 64 bytes. The default is {@code flink}. */
    public HeadraceSinkBuilder<T> setSinkId(String id) {
        sinkId = Objects.requireNonNull(id, "sinkId");
        return this;
    }

    /** Makes records of elements. */
    public HeadraceSinkBuilder<T> setRecordSerializer(HeadraceRecordSerializer<? super T> serializer) {
        this.serializer = Objects.requireNonNull(serializer, "serializer");
        ClosureCleaner.clean(this.serializer, org.apache.flink.api.common.ExecutionConfig.ClosureCleanerLevel.RECURSIVE, true);
        return this;
    }

    /** Makes values of elements; records have no key of their own. */
    public HeadraceSinkBuilder<T> setValueSerializationSchema(SerializationSchema<? super T> schema) {
        return setRecordSerializer(HeadraceRecordSerializer.of(schema));
    }

    /**
     * {@code EXACTLY_ONCE} (default): records are visible after the checkpoint that has them.
     * {@code AT_LEAST_ONCE}: they are visible every {@link #setCommitInterval}, and a restart
     * repeats those since the last checkpoint.
     */
    public HeadraceSinkBuilder<T> setDeliveryGuarantee(DeliveryGuarantee guarantee) {
        this.guarantee = Objects.requireNonNull(guarantee, "guarantee");
        return this;
    }

    /** How often records become visible with {@code AT_LEAST_ONCE}; the default is a second. */
    public HeadraceSinkBuilder<T> setCommitInterval(Duration interval) {
        commitInterval = Objects.requireNonNull(interval, "interval");
        return this;
    }

    /** How chunks are compressed on their way; the default is {@link Compression#ZLIB}. */
    public HeadraceSinkBuilder<T> setCompression(Compression compression) {
        this.compression = Objects.requireNonNull(compression, "compression");
        return this;
    }

    /**
     * True: task managers put their chunks into the dataset's bucket themselves, and only commits go
     * to the master, which must have a bucket ({@code landing_storage: s3://...}). Credentials, region
     * and endpoint come from where the AWS SDK looks for them on each task manager. In a Java job,
     * {@code software.amazon.awssdk:s3} and {@code url-connection-client} must be on the class path.
     * The default is false: chunks go to the master.
     */
    public HeadraceSinkBuilder<T> setUpload(boolean upload) {
        this.upload = upload;
        return this;
    }

    /** Checks the settings and builds the sink. */
    public HeadraceSink<T> build() {
        check(dataset != null && !dataset.isEmpty(), "dataset is missing: name one whose spec has `landing:`");
        check(serializer != null, "a serializer is missing: setValueSerializationSchema or setRecordSerializer");
        int length = sinkId.getBytes(StandardCharsets.UTF_8).length;
        check(length >= 1 && length <= LONGEST_ID, "sinkId has " + length + " bytes: 1 to " + LONGEST_ID + " are allowed");
        check(guarantee != DeliveryGuarantee.NONE, "delivery guarantee NONE would lose records: use AT_LEAST_ONCE or EXACTLY_ONCE");
        check(commitInterval.toMillis() >= 1, "commit interval " + commitInterval + " is too short: a millisecond or more");
        try {
            return new HeadraceSink<>(new SinkSettings(target.build(), dataset, sinkId, compression, guarantee, commitInterval, upload), serializer);
        } catch (HeadraceException e) {
            throw new IllegalArgumentException(e.getMessage(), e);
        }
    }

    private static void check(boolean good, String message) {
        if (!good) {
            throw new IllegalArgumentException(message);
        }
    }
}
