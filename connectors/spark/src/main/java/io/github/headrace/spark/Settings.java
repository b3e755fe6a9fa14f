package io.github.headrace.spark;

import io.github.headrace.push.HeadraceException;
import io.github.headrace.push.Pusher;
import io.github.headrace.push.Target;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.Serializable;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The options of a write. The driver reads and checks them, and sends them to the tasks. */
final class Settings implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final Logger LOG = LoggerFactory.getLogger(HeadraceWrite.class);
    private static final long SAY_EVERY_MS = 10_000;

    /** All options, as docs/spark.md lists them; Spark compares names without case. */
    private static final Set<String> KNOWN = Set.of("dataset", "path", "transaction", "value", "key", "time", "job", "state",
        "master", "token", "tokenfile", "tlscert", "tlskey", "tlsca", "patience", "upload");
    /** What Spark itself gives to a sink. */
    private static final Set<String> OF_SPARK = Set.of("checkpointlocation", "queryname");

    final String dataset;
    final String transaction; // null: made up
    final String value; // column, or null: the row as JSON
    final String key; // column, or null: what the spec says
    final String time; // column, or null
    final Duration patience; // null: for ever
    final boolean upload; // tasks put chunks into the bucket themselves
    private final Target target;

    private Settings(CaseInsensitiveStringMap options, Map<String, String> env) throws HeadraceException {
        Set<String> unknown = new TreeSet<>(options.keySet());
        unknown.removeAll(KNOWN);
        unknown.removeAll(OF_SPARK);
        if (!unknown.isEmpty()) {
            throw new IllegalArgumentException("option " + String.join(", ", unknown) + " is not known to the format headrace; the options are "
                + String.join(", ", new TreeSet<>(KNOWN)));
        }
        dataset = options.getOrDefault("dataset", options.get("path"));
        if (dataset == null || dataset.isEmpty()) {
            throw new IllegalArgumentException("option dataset is missing: the name of a dataset with `landing:` in its spec");
        }
        transaction = options.get("transaction");
        value = options.get("value");
        key = options.get("key");
        time = options.get("time");
        patience = duration(options.get("patience"));
        upload = flag(options.get("upload"));
        String master = options.getOrDefault("master", env.get("HEADRACE_MASTER"));
        String token = options.get("token");
        String tokenFile = options.get("tokenFile");
        if (token == null && tokenFile == null) {
            token = env.get("HEADRACE_TOKEN");
            tokenFile = env.get("HEADRACE_TOKEN_FILE");
        }
        target = Target.builder().master(empty(master)).state(state(options, env)).token(empty(token)).tokenFile(empty(tokenFile))
            .tls(empty(options.getOrDefault("tlsCert", env.get("HEADRACE_TLS_CERT"))), empty(options.getOrDefault("tlsKey", env.get("HEADRACE_TLS_KEY"))),
                empty(options.getOrDefault("tlsCa", env.get("HEADRACE_TLS_CA"))))
            .build();
    }

    static Settings of(CaseInsensitiveStringMap options) {
        try {
            return new Settings(options, System.getenv());
        } catch (HeadraceException e) {
            throw new IllegalArgumentException(e.getMessage(), e);
        }
    }

    /** The state folder that the command line would use too (docs/CLI.md). */
    private static String state(CaseInsensitiveStringMap options, Map<String, String> env) {
        String given = empty(options.getOrDefault("state", env.get("HEADRACE_STATE")));
        if (given != null) {
            return Path.of(given).toAbsolutePath().toString();
        }
        String job = empty(options.getOrDefault("job", env.get("HEADRACE_JOB")));
        String base = empty(env.get("XDG_STATE_HOME"));
        Path folder = base != null ? Path.of(base) : Path.of(System.getProperty("user.home"), ".local", "state");
        return folder.resolve("headrace").resolve(job == null ? "default" : job).toString();
    }

    private static String empty(String text) {
        return text == null || text.isEmpty() ? null : text;
    }

    private static Duration duration(String text) {
        if (text == null) {
            return null;
        }
        try {
            double seconds = Double.parseDouble(text);
            if (seconds >= 0) { // not NaN either
                return Duration.ofMillis(Math.round(1000 * seconds));
            }
        } catch (NumberFormatException e) {
            // said below
        }
        throw new IllegalArgumentException("option patience: \"" + text + "\" is not a number of seconds");
    }

    private static boolean flag(String text) {
        if (text == null || text.equalsIgnoreCase("false")) {
            return false;
        }
        if (text.equalsIgnoreCase("true")) {
            return true;
        }
        throw new IllegalArgumentException("option upload: \"" + text + "\" is not true or false");
    }

    /** For the driver, which commits. */
    Pusher open() throws IOException {
        return open(builder());
    }

    /** For a task. The driver opens one too, so that errors come before any task runs. */
    Pusher openForStaging() throws IOException {
        Pusher.Builder b = builder();
        return open(upload ? b.upload() : b);
    }

    /** Calls wait for the master, and say in the log why they wait. */
    private Pusher.Builder builder() {
        long[] said = {System.currentTimeMillis()}; // a wait of less than this is not worth a line
        return Pusher.builder(target, dataset).onWait(reason -> {
            synchronized (said) {
                if (System.currentTimeMillis() - said[0] >= SAY_EVERY_MS) {
                    said[0] = System.currentTimeMillis();
                    LOG.warn("pushing to dataset {} of {} waits: {}", dataset, target, reason);
                }
            }
        });
    }

    private Pusher open(Pusher.Builder b) throws IOException {
        try {
            return (patience == null ? b : b.patience(patience)).open();
        } catch (InterruptedException e) {
            throw interrupted(e);
        }
    }

    /** A task that Spark ends, because another one was faster or the stage has failed. */
    static IOException interrupted(InterruptedException e) {
        Thread.currentThread().interrupt();
        IOException io = new InterruptedIOException("the task was ended by Spark");
        io.initCause(e);
        return io;
    }
}
