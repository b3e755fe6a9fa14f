package io.github.headrace.flink;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
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
 * The job that tests/test_kills.py runs in a JVM of its own: the numbers from 0 on as JSON into a
 * dataset, with a checkpoint every 500 ms. Arguments are name=value. "savepoint FOLDER" on standard
 * input stops it with a savepoint.
 */
public final class NumbersJob {
    private NumbersJob() {}

    /** Runs until all numbers are pushed, or it is stopped. */
    public static void main(String[] args) throws Exception {
        Map<String, String> arg = new HashMap<>();
        for (String a : args) {
            arg.put(a.substring(0, a.indexOf('=')), a.substring(a.indexOf('=') + 1));
        }
        Map<String, String> conf = new HashMap<>();
        conf.put("execution.checkpointing.dir", "file://" + arg.get("checkpoints"));
        conf.put("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        conf.put("execution.checkpointing.num-retained", "3");
        conf.put("restart-strategy.type", "fixed-delay");
        conf.put("restart-strategy.fixed-delay.attempts", "1000");
        conf.put("restart-strategy.fixed-delay.delay", "200 ms");
        if (arg.containsKey("restore")) {
            conf.put("execution.state-recovery.path", arg.get("restore"));
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(
            Integer.parseInt(arg.get("parallelism")), Configuration.fromMap(conf));
        env.enableCheckpointing(500);
        GeneratorFunction<Long, String> numbers = i -> "{\"n\": " + i + ", \"user\": \"user-" + i % 97 + "\"}";
        env.fromSource(new DataGeneratorSource<>(numbers, Long.parseLong(arg.get("records")),
                RateLimiterStrategy.perSecond(Double.parseDouble(arg.get("rate"))), Types.STRING),
                WatermarkStrategy.noWatermarks(), "numbers").uid("numbers").setParallelism(2).setMaxParallelism(2)
            .rebalance()
            .sinkTo(HeadraceSink.<String>builder().setState(arg.get("state")).setDataset(arg.get("dataset"))
                .setSinkId("numbers").setValueSerializationSchema(new SimpleStringSchema()).build())
            .uid("headrace");
        JobClient job = env.executeAsync("numbers");
        System.out.println("runs");
        Thread listener = new Thread(() -> {
            try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
                String line = in.readLine();
                if (line != null) {
                    String path = job.stopWithSavepoint(false, "file://" + line.substring("savepoint ".length()), SavepointFormatType.CANONICAL).get();
                    System.out.println("savepoint " + path);
                }
            } catch (Exception e) {
                e.printStackTrace();
                System.exit(1);
            }
        });
        listener.setDaemon(true);
        listener.start();
        job.getJobExecutionResult().get();
        System.out.println("ends");
        if (listener.isAlive() && arg.containsKey("stops")) {
            listener.join();
        }
        System.exit(0);
    }
}
