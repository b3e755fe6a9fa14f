package io.github.headrace.flink;

import java.io.IOException;
import org.apache.flink.annotation.PublicEvolving;
import org.apache.flink.api.connector.sink2.Committer;
import org.apache.flink.api.connector.sink2.CommitterInitContext;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.SupportsCommitter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * Pushes the elements of a stream into a dataset of Headrace, exactly once by default.
 *
 * <pre>{@code
 * HeadraceSink<String> sink = HeadraceSink.<String>builder()
 *     .setMaster("127.0.0.1:7070")
 *     .setTokenFile("/etc/headrace/pusher.token")
 *     .setDataset("clicks")
 *     .setValueSerializationSchema(new SimpleStringSchema())
 *     .build();
 * stream.sinkTo(sink);
 * }</pre>
 *
 * @param <T> the elements
 */
@PublicEvolving
public final class HeadraceSink<T> implements SinkOfThisFlink<T>, SupportsCommitter<HeadraceCommittable> {
    private static final long serialVersionUID = 1L;

    private final SinkSettings settings;
    private final HeadraceRecordSerializer<? super T> serializer;

    HeadraceSink(SinkSettings settings, HeadraceRecordSerializer<? super T> serializer) {
        this.settings = settings;
        this.serializer = serializer;
    }

    /** A new builder. */
    public static <T> HeadraceSinkBuilder<T> builder() {
        return new HeadraceSinkBuilder<>();
    }

    @Override
    public SinkWriter<T> createWriter(WriterInitContext context) throws IOException {
        return new HeadraceWriter<>(settings, serializer, context);
    }

    @Override
    public Committer<HeadraceCommittable> createCommitter(CommitterInitContext context) {
        return new HeadraceCommitter(settings);
    }

    @Override
    public SimpleVersionedSerializer<HeadraceCommittable> getCommittableSerializer() {
        return new CommittableSerializer();
    }
}
