package io.github.headrace.flink;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicLongArray;
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

/**
 * A job in a JVM of its own, for tests that kill it. It writes numbers into the dataset {@code numbers},
 * with a checkpoint every 500 ms, until it is told to stop. The numbers come in two splits: from 0 on,
 * and from {@link #SECOND} on. A line on stdin stops it: {@code savepoint FOLDER}, or {@code end FOLDER},
 * which ends its input. It then prints {@code SAVEPOINT path} or {@code ENDED path last last}, with the
 * last number of each split.
 */
final class KilledJob {
    private static final long SECOND = 1L << 40;
    private static final AtomicLongArray LAST = new AtomicLongArray(new long[] {-1, -1});

    private KilledJob() {}

    public static void main(String[] args) throws Exception {
        String state = args[0];
        String checkpoints = args[1];
        double perSecond = Double.parseDouble(args[2]);
        int parallelism = Integer.parseInt(args[3]);
        boolean upload = Boolean.parseBoolean(args[4]);
        String restore = args[5]; // a checkpoint or a savepoint to restore; empty: begin from the start

        Configuration conf = new Configuration();
        conf.setString("execution.checkpointing.interval", "500 ms");
        conf.setString("execution.checkpointing.dir", "file://" + checkpoints);
        conf.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        if (!restore.isEmpty()) {
            conf.setString("execution.state-recovery.path", restore);
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(parallelism, conf);
        env.fromSource(
                // The first start has two subtasks. Each gets one split, half of the numbers.
                new DataGeneratorSource<>(new Line(), 2 * SECOND, RateLimiterStrategy.perSecond(perSecond), Types.STRING),
                WatermarkStrategy.noWatermarks(), "numbers")
            .uid("numbers")
            .rebalance()
            .sinkTo(HeadraceSink.<String>builder().setState(state).setDataset("numbers").setUpload(upload)
                .setValueSerializationSchema(new SimpleStringSchema()).build())
            .uid("headrace");
        JobClient job = env.executeAsync("numbers");
        Thread stopper = new Thread(() -> stopWhenTold(job), "stopper");
        stopper.setDaemon(true);
        stopper.start();
        job.getJobExecutionResult().get();
        if (stopping) {
            stopper.join();
        }
        System.exit(0);
    }

    /** Makes a record, and notes how far its split has come. */
    private static final class Line implements GeneratorFunction<Long, String> {
        private static final long serialVersionUID = 1L;

        @Override
        public String map(Long n) {
            LAST.set(n < SECOND ? 0 : 1, n);
            return "{\"n\": " + n + "}";
        }
    }

    private static volatile boolean stopping;

    private static void stopWhenTold(JobClient job) {
        try {
            String told = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)).readLine();
            if (told == null) {
                return;
            }
            boolean end = told.startsWith("end ");
            while (end && (LAST.get(0) < 0 || LAST.get(1) < 0)) {
                Thread.sleep(20); // until each split has given a number
            }
            stopping = true;
            String path = job.stopWithSavepoint(end, told.substring(told.indexOf(' ') + 1), SavepointFormatType.CANONICAL).get();
            System.out.println(end ? "ENDED " + path + " " + LAST.get(0) + " " + LAST.get(1) : "SAVEPOINT " + path);
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1);
        }
    }
}
