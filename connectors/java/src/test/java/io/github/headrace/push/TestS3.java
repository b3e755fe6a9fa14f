package io.github.headrace.push;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** A real S3 server with the bucket {@code lake}, for tests. HEADRACE_SERVER_S3 names the program (`make server-s3`). */
public final class TestS3 implements AutoCloseable {
    private static final Map<String, String> PROPERTIES = Map.of("AWS_ACCESS_KEY_ID", "aws.accessKeyId", "AWS_SECRET_ACCESS_KEY", "aws.secretAccessKey",
        "AWS_REGION", "aws.region", "AWS_ENDPOINT_URL", "aws.endpointUrlS3", "AWS_EC2_METADATA_DISABLED", "aws.disableEc2Metadata");

    private final Process process;
    private final BufferedReader out;
    private final PrintStream in;
    private final Map<String, String> environment = new HashMap<>();

    private TestS3(String program) throws IOException {
        process = new ProcessBuilder(program).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        out = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        in = new PrintStream(process.getOutputStream(), true, StandardCharsets.UTF_8);
        for (String line = line(); !line.isEmpty(); line = line()) {
            environment.put(line.substring(0, line.indexOf('=')), line.substring(line.indexOf('=') + 1));
        }
        PROPERTIES.forEach((name, property) -> System.setProperty(property, environment.get(name)));
    }

    /** Starts a server. Until it is closed, the AWS SDK of this JVM finds it and its keys. */
    public static TestS3 start() throws IOException {
        String program = System.getenv("HEADRACE_SERVER_S3");
        if (program == null || !Files.isExecutable(Path.of(program))) {
            throw new IllegalStateException("HEADRACE_SERVER_S3 does not name the program server-s3: run `make test-java`");
        }
        return new TestS3(program);
    }

    private String line() throws IOException {
        String line = out.readLine();
        if (line == null) {
            throw new IOException("the S3 server has ended");
        }
        return line;
    }

    /** Variables that make a master keep its chunks below a prefix of the bucket. */
    public Map<String, String> landing(String prefix) {
        Map<String, String> all = new HashMap<>(environment);
        all.put("HEADRACE_LANDING_STORAGE", "s3://lake/" + prefix);
        return all;
    }

    /** The keys below a prefix. */
    public List<String> list(String prefix) throws IOException {
        in.println("list lake/" + prefix);
        List<String> keys = new ArrayList<>();
        for (String line = line(); !line.equals("done"); line = line()) {
            keys.add(line);
        }
        return keys;
    }

    @Override
    public void close() throws InterruptedException {
        PROPERTIES.values().forEach(System::clearProperty);
        process.destroy(); // on SIGTERM it removes its folder
        process.waitFor();
    }
}
