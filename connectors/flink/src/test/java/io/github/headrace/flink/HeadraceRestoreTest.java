package io.github.headrace.flink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.headrace.push.TestMaster;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.ExceptionUtils;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Jobs that start from a savepoint and cannot go on. */
@Timeout(value = 600, unit = TimeUnit.SECONDS) // only ends a hang
class HeadraceRestoreTest {
    private static final AtomicLong MADE = new AtomicLong();
    private static final int ATTEMPTS = 4;

    private static final class Line implements GeneratorFunction<Long, String> {
        private static final long serialVersionUID = 1L;

        @Override
        public String map(Long n) {
            MADE.incrementAndGet();
            return "{\"n\": " + n + "}";
        }
    }

    private static JobClient start(TestMaster master, String restore) throws Exception {
        Configuration conf = new Configuration();
        conf.setString("execution.checkpointing.interval", "1 h"); // the savepoint has all records
        conf.setString("restart-strategy.type", "fixed-delay");
        conf.setString("restart-strategy.fixed-delay.attempts", Integer.toString(ATTEMPTS - 1));
        conf.setString("restart-strategy.fixed-delay.delay", "10 ms");
        if (restore != null) {
            conf.setString("execution.state-recovery.path", restore);
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(2, conf);
        env.fromSource(new DataGeneratorSource<>(new Line(), 1L << 40, RateLimiterStrategy.perSecond(500), Types.STRING),
                WatermarkStrategy.noWatermarks(), "numbers")
            .uid("numbers")
            .sinkTo(HeadraceSink.<String>builder().setState(master.state().toString()).setDataset("numbers")
                .setValueSerializationSchema(new SimpleStringSchema()).build())
            .uid("headrace");
        return env.executeAsync("numbers");
    }

    /** Counts open connections to the master, of this process and of any other. */
    private static long connections(TestMaster master) throws IOException {
        String port = String.format(":%04X 01 ", Integer.parseInt(master.address().substring(master.address().lastIndexOf(':') + 1)));
        long n = 0;
        for (String table : new String[] {"/proc/net/tcp", "/proc/net/tcp6"}) {
            // "sl local_address rem_address st": 01 is ESTABLISHED
            n += Files.readAllLines(Path.of(table)).stream().filter(line -> line.contains(port)).count();
        }
        return n;
    }

    private static void untilNoConnection(TestMaster master) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(120); // only ends a hang
        while (connections(master) > 0) {
            assertTrue(System.nanoTime() < deadline, connections(master) + " connections to the master are still open");
            Thread.sleep(20);
        }
    }

    @Test
    void aRestoreThatIsRefusedSaysWhyAndLeavesNoConnection(@TempDir Path dir) throws Exception {
        try (TestMaster master = TestMaster.start()) {
            master.apply("numbers", "{partitions: 2}");
            MADE.set(0);
            JobClient first = start(master, null);
            while (MADE.get() < 200) {
                Thread.sleep(20);
            }
            assertTrue(connections(master) > 0); // proves that connections() sees the job's connections
            String savepoint = first.stopWithSavepoint(false, dir.toUri().toString(), SavepointFormatType.CANONICAL).get();
            first.getJobExecutionResult().get();
            assertTrue(master.visible("numbers") >= 200);
            untilNoConnection(master);

            master.run("delete", "numbers", "--yes");
            master.apply("numbers", "{partitions: 2}");
            JobClient second = start(master, savepoint);
            ExecutionException failed = assertThrows(ExecutionException.class, () -> second.getJobExecutionResult().get());
            String why = ExceptionUtils.stringifyException(failed);
            assertTrue(why.contains("before dataset numbers was deleted and applied again"), why);
            untilNoConnection(master);
            assertEquals(0, master.visible("numbers"));
        }
    }
}
