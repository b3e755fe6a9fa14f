package io.github.headrace.flink;

import io.github.headrace.push.Compression;
import io.github.headrace.push.HeadraceException;
import io.github.headrace.push.Pusher;
import io.github.headrace.push.Target;
import java.io.Serializable;
import java.time.Duration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What a sink was built with, for its writers and its committers. */
final class SinkSettings implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final Logger LOG = LoggerFactory.getLogger(HeadraceSink.class);
    private static final long SAY_EVERY_MS = 10_000;

    final Target target;
    final String dataset;
    final String sinkId;
    final Compression compression;
    final DeliveryGuarantee guarantee;
    final Duration commitInterval;
    final boolean upload;

    SinkSettings(Target target, String dataset, String sinkId, Compression compression, DeliveryGuarantee guarantee, Duration commitInterval,
        boolean upload) {
        this.target = target;
        this.dataset = dataset;
        this.sinkId = sinkId;
        this.compression = compression;
        this.guarantee = guarantee;
        this.commitInterval = commitInterval;
        this.upload = upload;
    }

    /** A connection of a writer. */
    Pusher forStaging() throws HeadraceException, InterruptedException {
        Pusher.Builder b = builder(dataset);
        return (upload ? b.upload() : b).open();
    }

    /** A connection that commits what was staged for a dataset. */
    Pusher forCommits(String dataset) throws HeadraceException, InterruptedException {
        return builder(dataset).open();
    }

    /** Calls wait for the master, and say in the log why they wait. */
    private Pusher.Builder builder(String dataset) {
        long[] said = {System.currentTimeMillis()}; // a wait of less than this is not worth a line
        return Pusher.builder(target, dataset).compression(compression).onWait(reason -> {
            synchronized (said) {
                if (System.currentTimeMillis() - said[0] >= SAY_EVERY_MS) {
                    said[0] = System.currentTimeMillis();
                    LOG.warn("pushing to dataset {} of {} waits: {}", dataset, target, reason);
                }
            }
        });
    }
}
