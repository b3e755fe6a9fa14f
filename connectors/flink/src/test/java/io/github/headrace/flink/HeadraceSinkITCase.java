package io.github.headrace.flink;

import io.github.headrace.push.TestMaster;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.connector.testframe.environment.MiniClusterTestEnvironment;
import org.apache.flink.connector.testframe.external.ExternalContextFactory;
import org.apache.flink.connector.testframe.junit.annotations.TestContext;
import org.apache.flink.connector.testframe.junit.annotations.TestEnv;
import org.apache.flink.connector.testframe.junit.annotations.TestSemantics;
import org.apache.flink.connector.testframe.testsuites.SinkTestSuiteBase;
import org.apache.flink.core.execution.CheckpointingMode;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Timeout;

/** Flink's own suite for sinks, on a real master and real trainers. */
@Timeout(value = 600, unit = TimeUnit.SECONDS) // of each case: the suite waits for a lost record without a deadline
class HeadraceSinkITCase extends SinkTestSuiteBase<String> {
    private static final AtomicInteger CASES = new AtomicInteger();
    private static TestMaster master;

    @TestEnv
    MiniClusterTestEnvironment flink = new MiniClusterTestEnvironment();

    @TestSemantics
    CheckpointingMode[] semantics = {CheckpointingMode.EXACTLY_ONCE, CheckpointingMode.AT_LEAST_ONCE};

    @TestContext
    ExternalContextFactory<HeadraceSinkContext> contexts = name -> new HeadraceSinkContext(master, "case-" + CASES.incrementAndGet());

    @BeforeAll
    static void start() throws Exception {
        master = TestMaster.start();
        master.agent();
    }

    @AfterAll
    static void stop() throws Exception {
        if (master != null) {
            master.close();
        }
    }
}
