package io.github.headrace.flink;

import io.github.headrace.push.HeadraceException;
import io.github.headrace.push.PushRecord;
import io.github.headrace.push.Pusher;
import io.github.headrace.push.Staged;
import io.github.headrace.push.Transaction;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.UUID;
import org.apache.flink.api.common.operators.ProcessingTimeService;
import org.apache.flink.api.connector.sink2.CommittingSinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.groups.SinkWriterMetricGroup;

/**
 * Stages the elements of one subtask. It has a transaction for each checkpoint. Ids are unique for
 * good, because each writer draws a random part: what a failed attempt has staged is never
 * committed, and the master deletes it after {@code stage_ttl}.
 *
 * <p>Back pressure: write and flush wait while the dataset is full or the master is away.
 */
final class HeadraceWriter<T> implements CommittingSinkWriter<T, HeadraceCommittable> {
    private final SinkSettings settings;
    private final HeadraceRecordSerializer<? super T> serializer;
    private final Pusher pusher;
    private final String idPrefix;
    private final ProcessingTimeService timers;
    private final Counter records;
    private final Counter bytes;
    private final Counter errors;

    private long nextTransaction;
    private Transaction current; // null: nothing was written since the last checkpoint
    private List<HeadraceCommittable> staged = new ArrayList<>();
    private volatile long lastStageMillis;
    private boolean closed;

    HeadraceWriter(SinkSettings settings, HeadraceRecordSerializer<? super T> serializer, WriterInitContext context) throws IOException {
        this.settings = settings;
        this.serializer = serializer;
        timers = context.getProcessingTimeService();
        idPrefix = settings.sinkId + "/" + context.getTaskInfo().getIndexOfThisSubtask() + "/" + context.getTaskInfo().getAttemptNumber()
            + "/" + UUID.randomUUID() + "/";
        SinkWriterMetricGroup metrics = context.metricGroup();
        records = metrics.getNumRecordsSendCounter();
        bytes = metrics.getNumBytesSendCounter();
        errors = metrics.getNumRecordsSendErrorsCounter();
        metrics.setCurrentSendTimeGauge(() -> lastStageMillis);
        try {
            serializer.open(context.asSerializationSchemaInitializationContext());
        } catch (IOException e) {
            throw e;
        } catch (Exception e) {
            throw new IOException("the serializer of the sink to dataset " + settings.dataset + " could not be opened", e);
        }
        try {
            pusher = settings.forStaging();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IOException("the task was cancelled while it waited for the master of dataset " + settings.dataset, e);
        }
        metrics.gauge("waitedMillis", pusher::waitedMillis);
        if (settings.guarantee == DeliveryGuarantee.AT_LEAST_ONCE) {
            commitLater();
        }
    }

    @Override
    public void write(T element, Context context) throws IOException, InterruptedException {
        try {
            PushRecord r = serializer.serialize(element, context.timestamp());
            if (r == null) {
                return;
            }
            if (current == null) {
                current = pusher.begin(idPrefix + nextTransaction++);
            }
            long before = current.bytes();
            current.push(r);
            records.inc();
            bytes.inc(current.bytes() - before);
        } catch (IOException | InterruptedException | RuntimeException e) {
            errors.inc();
            throw e;
        } catch (Exception e) {
            errors.inc();
            throw new IOException("an element could not be made a record of dataset " + settings.dataset, e);
        }
    }

    @Override
    public void flush(boolean endOfInput) throws IOException, InterruptedException {
        Transaction t = current;
        if (t == null) {
            return;
        }
        current = null;
        long from = System.nanoTime();
        try {
            Staged s = t.stage();
            if (settings.guarantee == DeliveryGuarantee.AT_LEAST_ONCE) {
                pusher.commit(s);
            } else {
                staged.add(new HeadraceCommittable(settings.dataset, s));
            }
        } catch (HeadraceException e) {
            errors.inc();
            throw e;
        }
        lastStageMillis = (System.nanoTime() - from) / 1_000_000;
    }

    @Override
    public Collection<HeadraceCommittable> prepareCommit() {
        List<HeadraceCommittable> all = staged;
        staged = new ArrayList<>();
        return all;
    }

    /** AT_LEAST_ONCE: records become visible without waiting for a checkpoint. */
    private void commitLater() {
        timers.registerTimer(timers.getCurrentProcessingTime() + settings.commitInterval.toMillis(), now -> {
            if (!closed) {
                flush(false);
                commitLater();
            }
        });
    }

    @Override
    public void close() {
        closed = true;
        if (current != null) {
            current.abort();
        }
        pusher.close();
    }
}
