package io.github.headrace.flink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.headrace.push.TestMaster;
import io.github.headrace.push.TestPage;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The spec and the programs of docs/flink.md, with a real master and a real trainer. */
@Timeout(value = 600, unit = TimeUnit.SECONDS) // only ends a hang
class HeadracePageTest {
    private static final String IMPORTS = String.join("\n",
        "import io.github.headrace.flink.*;",
        "import org.apache.flink.api.common.serialization.SimpleStringSchema;",
        "import org.apache.flink.streaming.api.datastream.DataStream;");

    @Test
    void theProgramsOfThePageRun() throws Exception {
        TestPage page = TestPage.of("flink.md");
        try (TestMaster master = TestMaster.start()) {
            master.agent();
            Path spec = Files.writeString(master.dir().resolve("page.yaml"), page.program("yaml", "name: clicks", master));
            master.run("apply", "-f", spec.toString());
            Path got = master.trainer("clicks");

            TableEnvironment t = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
            t.executeSql("CREATE TEMPORARY VIEW joined AS SELECT * FROM (VALUES (1, 1, 'a'), (2, 0, 'b')) AS j (id, clicked, ad)");
            for (String statement : page.program("sql", "CREATE TABLE training", master).split(";\n")) {
                if (statement.trim().startsWith("INSERT")) {
                    t.executeSql(statement).await();
                } else {
                    t.executeSql(statement);
                }
            }
            master.untilRows(got, 2);

            StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
            TestPage.run(master.dir().resolve("program"), IMPORTS, "DataStream<String> stream", page.program("java", "sinkTo", master),
                env.fromData("{\"id\": 3, \"label\": 0.5, \"ad\": \"c\"}"));
            env.execute();
            master.untilRows(got, 3);

            List<String> rows = Files.readAllLines(got); // ad, id, label
            assertEquals(3, rows.size());
            assertTrue(rows.stream().anyMatch(r -> r.endsWith(", 1, 1.0)")), rows.toString());
            assertTrue(rows.stream().anyMatch(r -> r.endsWith(", 2, 0.0)")), rows.toString());
            assertTrue(rows.stream().anyMatch(r -> r.endsWith(", 3, 0.5)")), rows.toString());
        }
    }
}
