package io.github.headrace.spark;

import io.github.headrace.push.Pusher;
import io.github.headrace.push.Transaction;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** The rows of one attempt of one task. */
final class TaskWriter implements DataWriter<InternalRow> {
    private final Pusher pusher;
    private final Transaction transaction;
    private final RowRecords records;
    private boolean over;

    private TaskWriter(Pusher pusher, Transaction transaction, RowRecords records) {
        this.pusher = pusher;
        this.transaction = transaction;
        this.records = records;
    }

    static TaskWriter begin(Settings settings, RowRecords records, String id) {
        try {
            Pusher p = settings.openForStaging();
            return new TaskWriter(p, p.begin(id), records);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public void write(InternalRow row) throws IOException {
        try {
            transaction.push(records.of(row));
        } catch (InterruptedException e) {
            throw Settings.interrupted(e);
        }
    }

    /** All rows are durable when it returns. Nobody sees them before the driver commits. */
    @Override
    public WriterCommitMessage commit() throws IOException {
        try {
            over = true;
            return new HeadraceWrite.Done(transaction.stage());
        } catch (InterruptedException e) {
            throw Settings.interrupted(e);
        }
    }

    @Override
    public void abort() {
        over = true;
        transaction.abort();
    }

    @Override
    public void close() {
        if (!over) {
            abort();
        }
        pusher.close();
    }
}
