package io.github.headrace.flink;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
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
 * A job in a JVM of its own, for tests that kill it: the numbers below {@code records} into the
 * dataset {@code numbers}, with a checkpoint every 500 ms. A line on stdin that names a folder stops
 * it with a savepoint there. It prints {@code SAVEPOINT path} or {@code FINISHED}.
 */
final class KilledJob {
    private KilledJob() {}

    public static void main(String[] args) throws Exception {
        String state = args[0];
        String checkpoints = args[1];
        long records = Long.parseLong(args[2]);
        double perSecond = Double.parseDouble(args[3]); // 0: as fast as it goes
        int parallelism = Integer.parseInt(args[4]);
        String restore = args[5]; // a checkpoint or a savepoint; empty: from the start

        Configuration conf = new Configuration();
        conf.setString("execution.checkpointing.interval", "500 ms");
        conf.setString("execution.checkpointing.dir", "file://" + checkpoints);
        conf.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        if (!restore.isEmpty()) {
            conf.setString("execution.state-recovery.path", restore);
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(parallelism, conf);
        GeneratorFunction<Long, String> line = n -> "{\"n\": " + n + "}";
        env.fromSource(
                new DataGeneratorSource<>(line, records, perSecond > 0 ? RateLimiterStrategy.perSecond(perSecond) : RateLimiterStrategy.noOp(), Types.STRING),
                WatermarkStrategy.noWatermarks(), "numbers")
            .uid("numbers")
            .rebalance()
            .sinkTo(HeadraceSink.<String>builder().setState(state).setDataset("numbers").setValueSerializationSchema(new SimpleStringSchema()).build())
            .uid("headrace");
        JobClient job = env.executeAsync("numbers");
        Thread stopper = new Thread(() -> stopWhenTold(job), "stopper");
        stopper.setDaemon(true);
        stopper.start();
        job.getJobExecutionResult().get();
        if (stopping) {
            stopper.join();
        } else {
            System.out.println("FINISHED");
        }
        System.exit(0);
    }

    private static volatile boolean stopping;

    private static void stopWhenTold(JobClient job) {
        try {
            String folder = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)).readLine();
            if (folder == null) {
                return;
            }
            stopping = true;
            System.out.println("SAVEPOINT " + job.stopWithSavepoint(false, folder, SavepointFormatType.CANONICAL).get());
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1);
        }
    }
}
