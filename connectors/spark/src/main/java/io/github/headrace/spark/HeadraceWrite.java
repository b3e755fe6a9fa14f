package io.github.headrace.spark;

import io.github.headrace.push.Committed;
import io.github.headrace.push.Pusher;
import io.github.headrace.push.Staged;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A write on the driver. Tasks stage their rows; the driver commits what the successful ones
 * have staged. A chunk that no commit names is never seen, so failed, retried and speculative
 * tasks do no harm.
 */
final class HeadraceWrite implements Write {
    private static final Logger LOG = LoggerFactory.getLogger(HeadraceWrite.class);

    private final Settings settings;
    private final RowRecords records;
    private final String queryId;

    HeadraceWrite(Settings settings, RowRecords records, String queryId) {
        this.settings = settings;
        this.records = records;
        this.queryId = queryId;
    }

    @Override
    public String description() {
        return "headrace dataset " + settings.dataset;
    }

    /** One transaction for the whole write. */
    @Override
    public BatchWrite toBatch() {
        String transaction = settings.transaction != null ? settings.transaction : "spark-" + queryId;
        return new BatchWrite() {
            @Override
            public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
                check(settings);
                return new Tasks(settings, records, transaction);
            }

            /** Any attempt may stage: a chunk counts only if the commit names it. */
            @Override
            public boolean useCommitCoordinator() {
                return false;
            }

            @Override
            public void commit(WriterCommitMessage[] messages) {
                HeadraceWrite.this.commit(transaction, messages);
            }

            @Override
            public void abort(WriterCommitMessage[] messages) {
                // What was staged is deleted after stage_ttl.
            }
        };
    }

    /** One transaction for each epoch. The id of a query stays the same when it restarts from its checkpoint. */
    @Override
    public StreamingWrite toStreaming() {
        if (settings.transaction != null) {
            throw new IllegalArgumentException("option transaction is for a batch: the transactions of a streaming query are named by its id and epoch");
        }
        return new StreamingWrite() {
            @Override
            public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
                check(settings);
                return new Epochs(settings, records, queryId);
            }

            @Override
            public void commit(long epoch, WriterCommitMessage[] messages) {
                HeadraceWrite.this.commit(ofEpoch(queryId, epoch), messages);
            }

            @Override
            public void abort(long epoch, WriterCommitMessage[] messages) {
                // As above. The epoch comes again.
            }
        };
    }

    static String ofEpoch(String queryId, long epoch) {
        return "spark-" + queryId + "/" + epoch;
    }

    /** Errors of the dataset or the token come before any task. */
    private static void check(Settings settings) {
        try (Pusher p = settings.openForStaging()) {
            LOG.debug("dataset {} has {} partitions", settings.dataset, p.layout().partitions());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private void commit(String transaction, WriterCommitMessage[] messages) {
        List<String> locators = new ArrayList<>();
        long rows = 0;
        long bytes = 0;
        for (WriterCommitMessage m : messages) {
            if (m == null) {
                continue; // a task that Spark did not need
            }
            Staged staged = ((Done) m).staged;
            locators.addAll(staged.locators());
            rows += staged.records();
            bytes += staged.bytes();
        }
        try (Pusher p = settings.open()) {
            // First: what is visible stays as it is, whatever this attempt has staged.
            Committed done = p.landed(transaction);
            if (done == null) {
                done = p.commit(new Staged(transaction, locators, rows, bytes));
            }
            if (done.records() != rows) {
                LOG.warn("transaction {} of dataset {} was visible before with {} records; this attempt had {}, and none of them was added",
                    transaction, settings.dataset, done.records(), rows);
            }
            LOG.info("transaction {} of dataset {}: {}", transaction, settings.dataset, done);
        } catch (InterruptedException e) {
            throw new UncheckedIOException(Settings.interrupted(e));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** What a task tells the driver. */
    static final class Done implements WriterCommitMessage {
        private static final long serialVersionUID = 1L;
        final Staged staged;

        Done(Staged staged) {
            this.staged = staged;
        }
    }

    /** Makes the writers of a batch's tasks. */
    private static final class Tasks implements DataWriterFactory {
        private static final long serialVersionUID = 1L;
        private final Settings settings;
        private final RowRecords records;
        private final String transaction;

        Tasks(Settings settings, RowRecords records, String transaction) {
            this.settings = settings;
            this.records = records;
            this.transaction = transaction;
        }

        @Override
        public DataWriter<InternalRow> createWriter(int partition, long task) {
            return TaskWriter.begin(settings, records, transaction);
        }
    }

    /** Makes the writers of an epoch's tasks. */
    private static final class Epochs implements StreamingDataWriterFactory {
        private static final long serialVersionUID = 1L;
        private final Settings settings;
        private final RowRecords records;
        private final String queryId;

        Epochs(Settings settings, RowRecords records, String queryId) {
            this.settings = settings;
            this.records = records;
            this.queryId = queryId;
        }

        @Override
        public DataWriter<InternalRow> createWriter(int partition, long task, long epoch) {
            return TaskWriter.begin(settings, records, ofEpoch(queryId, epoch));
        }
    }
}
