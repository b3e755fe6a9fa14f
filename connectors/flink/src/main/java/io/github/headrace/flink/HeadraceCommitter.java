package io.github.headrace.flink;

import io.github.headrace.push.Committed;
import io.github.headrace.push.HeadraceException;
import io.github.headrace.push.Pusher;
import java.io.IOException;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.connector.sink2.Committer;

/**
 * Makes staged transactions visible. It waits while the master is away. Any other failure fails the
 * job: Flink restarts it and the same commit is tried again. A transaction is never discarded.
 */
final class HeadraceCommitter implements Committer<HeadraceCommittable> {
    private final SinkSettings settings;
    private final Map<String, Pusher> pushers = new HashMap<>(); // by dataset: restored state may name another

    HeadraceCommitter(SinkSettings settings) {
        this.settings = settings;
    }

    @Override
    public void commit(Collection<CommitRequest<HeadraceCommittable>> requests) throws IOException, InterruptedException {
        for (CommitRequest<HeadraceCommittable> r : requests) {
            HeadraceCommittable c = r.getCommittable();
            try {
                Pusher p = pushers.get(c.dataset());
                if (p == null) {
                    p = settings.forCommits(c.dataset());
                    pushers.put(c.dataset(), p);
                }
                Committed done = p.commit(c.staged());
                if (done.already()) {
                    r.signalAlreadyCommitted();
                }
            } catch (HeadraceException e) {
                // Not the variant "with known reason": Flink logs that one and goes on, and the records are lost.
                r.signalFailedWithUnknownReason(e);
            }
        }
    }

    @Override
    public void close() {
        pushers.values().forEach(Pusher::close);
    }
}
