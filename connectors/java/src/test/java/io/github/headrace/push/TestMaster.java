package io.github.headrace.push;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** A real master in a folder of its own, for tests. HEADRACE_BIN names the binary. */
public final class TestMaster implements AutoCloseable {
    private static final Pattern LISTED = Pattern.compile("\"listed\": *([0-9]+)");
    private static final long LONGEST_WAIT_S = 120; // only ends a hang

    private final Path dir;
    private final List<String> flags;
    private Map<String, String> environment;
    private final List<Process> others = new ArrayList<>();
    private Process process;
    private Process trainer;

    private TestMaster(Path dir, List<String> flags, Map<String, String> environment) {
        this.dir = dir;
        this.flags = flags;
        this.environment = environment;
    }

    /** Starts a master; flags are further flags of {@code headrace master}. */
    public static TestMaster start(String... flags) throws Exception {
        return start(Map.of(), flags);
    }

    /** Starts a master with more variables in its environment. Its agent gets them, too. */
    public static TestMaster start(Map<String, String> environment, String... flags) throws Exception {
        TestMaster m = new TestMaster(Files.createTempDirectory("hr"), List.of(flags), environment);
        Files.createDirectory(m.state());
        m.begin();
        return m;
    }

    static String binary() {
        String bin = System.getenv("HEADRACE_BIN");
        if (bin == null || !Files.isExecutable(Path.of(bin))) {
            throw new IllegalStateException("HEADRACE_BIN does not name the headrace binary: run `make test-java`");
        }
        return bin;
    }

    /** The folder of the test; the master's state is in its folder {@code state}. */
    public Path dir() {
        return dir;
    }

    /** The state folder, with the master's address and token. */
    public Path state() {
        return dir.resolve("state");
    }

    /** How to reach the master as its owner. */
    public Target target() throws HeadraceException {
        return Target.builder().state(state().toString()).build();
    }

    /** The address of the master that runs. */
    public String address() throws IOException {
        return Files.readString(state().resolve("master.addr")).trim();
    }

    /** Starts it again with other variables in its environment. */
    public void begin(Map<String, String> environment) throws Exception {
        this.environment = environment;
        begin();
    }

    /** Starts the master, or starts it again, on any free port unless flags name one. */
    public void begin() throws Exception {
        List<String> command = new ArrayList<>(List.of(binary(), "master", "--state", state().toString(), "--http", "off", "--log-level", "warn"));
        if (!flags.contains("--listen")) {
            command.addAll(List.of("--listen", "127.0.0.1:0"));
        }
        if (!flags.contains("--session-ttl")) { // so long that no session ends on a machine that stands still
            command.addAll(List.of("--session-ttl", "60s"));
        }
        command.addAll(flags);
        Path address = state().resolve("master.addr");
        FileTime old = Files.exists(address) ? Files.getLastModifiedTime(address) : null;
        ProcessBuilder b = new ProcessBuilder(command).directory(dir.toFile()).redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.appendTo(dir.resolve("master.log").toFile()));
        b.environment().putAll(environment);
        process = b.start();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LONGEST_WAIT_S);
        while (!Files.exists(address) || Files.getLastModifiedTime(address).equals(old)) {
            if (!process.isAlive() || System.nanoTime() > deadline) {
                throw new IllegalStateException("the master did not start: " + Files.readString(dir.resolve("master.log")));
            }
            Thread.sleep(10);
        }
    }

    /** Freezes the process, or lets it go on, with kill -STOP and kill -CONT. */
    public void freeze(boolean frozen) throws Exception {
        new ProcessBuilder("kill", frozen ? "-STOP" : "-CONT", Long.toString(process.pid())).start().waitFor();
    }

    /** Kills the master with kill -9. */
    public void kill() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }

    /** Runs the command line as the master's owner and returns what it prints. */
    public String run(String... args) throws Exception {
        List<String> command = new ArrayList<>(List.of(binary()));
        command.addAll(List.of(args));
        command.addAll(List.of("--state", state().toString()));
        Process p = new ProcessBuilder(command).directory(dir.toFile()).redirectErrorStream(true).start();
        p.getOutputStream().close();
        String out = new String(p.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        if (p.waitFor() != 0) {
            throw new IllegalStateException(String.join(" ", args) + ": " + out);
        }
        return out;
    }

    /** Applies the spec of a landing dataset of JSON records with a number {@code n}; landing is YAML, as in "{partitions: 2}". */
    public void apply(String dataset, String landing) throws Exception {
        apply(dataset, landing, "{format: json, columns: [{name: n, path: /n, dtype: int64}]}");
    }

    /** Applies the spec of a landing dataset with this {@code decode}. */
    public void apply(String dataset, String landing, String decode) throws Exception {
        Path spec = dir.resolve(dataset + ".yaml");
        Files.writeString(spec, "name: " + dataset + "\nlanding: " + landing + "\ndecode: " + decode + "\n");
        run("apply", "-f", spec.toString());
    }

    /** The number of visible records of a dataset. */
    public long visible(String dataset) throws Exception {
        Matcher m = LISTED.matcher(run("describe", dataset, "-o", "json"));
        if (!m.find()) {
            throw new IllegalStateException("the output of `dataset describe` does not name the number of listed records");
        }
        return Long.parseLong(m.group(1));
    }

    /** Starts an agent on this machine, for trainers. */
    public void agent() throws Exception {
        Path socket = dir.resolve("agent.sock");
        ProcessBuilder b = new ProcessBuilder(binary(), "agent", "--name", "a1", "--socket", socket.toString(), "--state", state().toString(), "--log-level", "warn")
            .directory(dir.toFile()).redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.appendTo(dir.resolve("agent.log").toFile()));
        b.environment().putAll(environment);
        Process agent = b.start();
        others.add(agent);
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LONGEST_WAIT_S);
        while (!Files.exists(socket)) {
            if (!agent.isAlive() || System.nanoTime() > deadline) {
                throw new IllegalStateException("the agent did not start: " + Files.readString(dir.resolve("agent.log")));
            }
            Thread.sleep(10);
        }
    }

    private static final String TRAINER = String.join("\n",
        "import headrace, sys",
        "with headrace.dataset(sys.argv[1]).batches(1000, max_wait=0.05) as stream:",
        "    for b in stream:",
        "        for row in b.to_dicts():",
        "            print(repr(tuple(row[name] for name in sorted(row))))",
        "        sys.stdout.flush()",
        "        stream.step()");

    /**
     * Starts a trainer in Python that writes each row that it gets, as a tuple of the columns by
     * name, into the returned file. It replaces the trainer that was started before.
     * HEADRACE_PYTHON names a Python with the package headrace.
     */
    public Path trainer(String dataset) throws Exception {
        String python = System.getenv("HEADRACE_PYTHON");
        if (python == null) {
            throw new IllegalStateException("HEADRACE_PYTHON does not name a Python with the package headrace: run `make test-java` or `make test-flink`");
        }
        if (trainer != null) {
            trainer.destroyForcibly().waitFor();
        }
        Path rows = dir.resolve("rows-" + dataset);
        ProcessBuilder b = new ProcessBuilder(python, "-c", TRAINER, dataset).directory(dir.toFile())
            .redirectOutput(rows.toFile()).redirectError(trainerLog().toFile());
        b.environment().put("HEADRACE_AGENT", dir.resolve("agent.sock").toString());
        b.environment().put("PYTHONIOENCODING", "utf-8");
        trainer = b.start();
        return rows;
    }

    /** Throws if the trainer has ended, with what it has printed: then no more rows will come. */
    public void checkTrainer() throws IOException {
        if (!trainer.isAlive()) {
            throw new IllegalStateException("the trainer has ended: " + Files.readString(trainerLog()));
        }
    }

    /** Waits until the trainer has written so many rows. */
    public void untilRows(Path rows, int n) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LONGEST_WAIT_S);
        while (Files.readAllLines(rows).size() < n) {
            checkTrainer();
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the trainer has " + Files.readAllLines(rows).size() + " rows, not " + n + ": " + Files.readString(trainerLog()));
            }
            Thread.sleep(10);
        }
    }

    /** Ends the trainer. */
    public void endTrainer() throws Exception {
        trainer.destroy();
        trainer.waitFor();
    }

    /** Waits until the trainer has ended without an error, and so has read the dataset to its end. */
    public void trainerEnded() throws Exception {
        if (!trainer.waitFor(LONGEST_WAIT_S, TimeUnit.SECONDS) || trainer.exitValue() != 0) {
            throw new IllegalStateException("the trainer has ended with an error, or not at all: " + Files.readString(trainerLog()));
        }
    }

    private Path trainerLog() {
        return dir.resolve("trainer.log");
    }

    @Override
    public void close() throws Exception {
        if (trainer != null) {
            trainer.destroyForcibly().waitFor();
        }
        for (Process p : others) {
            p.destroyForcibly().waitFor();
        }
        process.destroyForcibly().waitFor();
        try (Stream<Path> all = Files.walk(dir)) {
            for (Path p : (Iterable<Path>) all.sorted(Comparator.reverseOrder())::iterator) {
                Files.delete(p);
            }
        }
    }
}
