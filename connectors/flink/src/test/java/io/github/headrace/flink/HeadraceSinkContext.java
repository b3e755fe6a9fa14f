package io.github.headrace.flink;

import io.github.headrace.push.TestMaster;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.testframe.external.ExternalSystemDataReader;
import org.apache.flink.connector.testframe.external.sink.DataStreamSinkV2ExternalContext;
import org.apache.flink.connector.testframe.external.sink.TestingSinkSettings;

/** A dataset at a real master for one case of Flink's suite, read by a real trainer. */
final class HeadraceSinkContext implements DataStreamSinkV2ExternalContext<String> {
    private final TestMaster master;
    private final String dataset;
    private Path rows;

    HeadraceSinkContext(TestMaster master, String dataset) {
        this.master = master;
        this.dataset = dataset;
    }

    /**
     * Applies the dataset and starts the trainer. The constructor cannot, because the suite makes the
     * contexts of both semantics before the first case, and a master has one trainer.
     */
    private void begin() {
        if (rows != null) {
            return;
        }
        try {
            master.apply(dataset, "{partitions: 3}", "lines");
            rows = master.trainer(dataset);
        } catch (Exception e) {
            throw new IllegalStateException("dataset " + dataset + " could not be applied, or its trainer did not start", e);
        }
    }

    @Override
    public Sink<String> createSink(TestingSinkSettings settings) {
        begin();
        try {
            return HeadraceSink.<String>builder().setState(master.state().toString()).setDataset(dataset)
                .setValueSerializationSchema(new SimpleStringSchema())
                .setDeliveryGuarantee(DeliveryGuarantee.valueOf(settings.getCheckpointingMode().name()))
                .build();
        } catch (IllegalArgumentException e) {
            throw new UnsupportedOperationException(e);
        }
    }

    @Override
    public ExternalSystemDataReader<String> createSinkDataReader(TestingSinkSettings settings) {
        return new Reader();
    }

    /** Returns the rows that the trainer has got, from its first row on. */
    private final class Reader implements ExternalSystemDataReader<String> {
        private long at;

        @Override
        public List<String> poll(Duration timeout) {
            List<String> all = new ArrayList<>();
            try (RandomAccessFile f = new RandomAccessFile(rows.toFile(), "r")) {
                byte[] b = new byte[(int) (f.length() - at)];
                f.seek(at);
                f.readFully(b);
                int end = new String(b, StandardCharsets.ISO_8859_1).lastIndexOf('\n') + 1;
                at += end;
                for (String line : new String(b, 0, end, StandardCharsets.UTF_8).split("\n")) {
                    if (!line.isEmpty()) {
                        all.add(line.substring("(b'".length(), line.length() - "',)".length()));
                    }
                }
                if (all.isEmpty()) {
                    master.checkTrainer();
                    Thread.sleep(Math.min(50, timeout.toMillis()));
                }
                return all;
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return all;
            }
        }

        @Override
        public void close() {}
    }

    @Override
    public List<String> generateTestData(TestingSinkSettings settings, long seed) {
        Random random = new Random(seed);
        List<String> all = new ArrayList<>();
        for (int i = 0; i < 100 + random.nextInt(100); i++) {
            all.add(i + "-" + Long.toHexString(random.nextLong()));
        }
        return all;
    }

    @Override
    public TypeInformation<String> getProducedType() {
        return Types.STRING;
    }

    @Override
    public List<URL> getConnectorJarPaths() {
        return List.of();
    }

    @Override
    public void close() {}

    @Override
    public String toString() {
        return "landing";
    }
}
