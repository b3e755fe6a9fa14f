package io.github.headrace.flink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.headrace.push.TestMaster;
import io.github.headrace.push.TestS3;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** SQL into a real master, read by a real trainer. */
@Timeout(value = 600, unit = TimeUnit.SECONDS) // only ends a hang
class HeadraceTableTest {
    private static TestMaster master;

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

    private static TableEnvironment flink() {
        TableEnvironment t = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        t.getConfig().set("parallelism.default", "2");
        return t;
    }

    private static List<String> rows(Path file, int n) throws Exception {
        return rows(master, file, n);
    }

    private static List<String> rows(TestMaster master, Path file, int n) throws Exception {
        while (true) {
            List<String> all = Files.readAllLines(file);
            if (all.size() >= n) {
                return all;
            }
            master.checkTrainer();
            Thread.sleep(20);
        }
    }

    @Test
    void rowsBecomeRecordsWithColumnsByName() throws Exception {
        master.apply("typed", "{}", "\n  format: json\n  event_time: /at\n  columns:\n"
            + "    - {name: a_bool, path: /a_bool, dtype: bool}\n"
            + "    - {name: b_long, path: /b_long, dtype: int64}\n"
            + "    - {name: c_double, path: /c_double, dtype: float64}\n"
            + "    - {name: d_text, path: /d_text, dtype: string}\n"
            + "    - {name: e_day, path: /e_day, dtype: string}\n"
            + "    - {name: f_at, path: /at, dtype: int64}\n"
            + "    - {name: g_list, path: '/g_list/*', dtype: int32}\n"
            + "    - {name: h_nested, path: /h/x, dtype: int32}\n"
            + "    - {name: i_map, path: /m/k, dtype: string}\n"
            + "    - {name: j_null, path: /j_null, dtype: int64, default: -1}\n");
        Path got = master.trainer("typed");
        TableEnvironment t = flink();
        t.executeSql("CREATE TABLE typed (j_null BIGINT, b_long BIGINT, a_bool BOOLEAN, c_double DOUBLE, d_text STRING, e_day DATE, `at` TIMESTAMP(3),"
            + " g_list ARRAY<INT>, h ROW<x INT>, m MAP<STRING, STRING>) WITH ('connector' = 'headrace', 'dataset' = 'typed', 'state' = '" + master.state() + "')");
        t.executeSql("INSERT INTO typed VALUES (CAST(NULL AS BIGINT), 9007199254740993, TRUE, CAST(0.1 AS DOUBLE), U&'say \"h\\00e9\"\\005c\\000a', DATE '2026-01-31',"
            + " TIMESTAMP '2026-01-31 00:00:01.5', ARRAY[1, 2, 3], CAST(ROW(7) AS ROW<x INT>), MAP['k', 'v'])").await();
        String row = rows(got, 1).get(0);
        assertTrue(row.startsWith("(True, 9007199254740993, 0.1, 'say \"hé\"\\\\\\n', '2026-01-31', 1769817601500, "), row);
        assertTrue(row.contains("1, 2, 3") && row.endsWith(", 7, 'v', -1)"), row);
    }

    @Test
    void nanAndInfinityAreMissing() throws Exception {
        master.apply("finite", "{}", "\n  format: json\n  columns:\n"
            + "    - {name: a_double, path: /d, dtype: float64, default: nan}\n"
            + "    - {name: b_float, path: /f, dtype: float32, default: -1}\n"
            + "    - {name: c_list, path: '/list/*', dtype: float64, default: -2}\n"
            + "    - {name: d_left_out, path: /m/k, dtype: float32, default: -3}\n"
            + "    - {name: e_entry, path: /m/l, dtype: float32}\n"
            + "    - {name: f_nested, path: /h/x, dtype: float64, default: -4}\n"
            + "    - {name: g_whole, path: $value, dtype: string}\n");
        Path got = master.trainer("finite");
        TableEnvironment t = flink();
        t.executeSql("CREATE TABLE finite (n BIGINT, d DOUBLE, f FLOAT, list ARRAY<DOUBLE>, m MAP<STRING, FLOAT>, h ROW<x DOUBLE, y DOUBLE>)"
            + " WITH ('connector' = 'headrace', 'dataset' = 'finite', 'state' = '" + master.state() + "')");
        // Flink's planner refuses NaN as a constant, so the query computes it from a row, as 0 / 0.
        t.executeSql("CREATE TABLE zero (z DOUBLE) WITH ('connector' = 'datagen', 'fields.z.kind' = 'sequence', 'fields.z.start' = '0', 'fields.z.end' = '0')");
        t.executeSql("INSERT INTO finite SELECT 1, z / z, CAST(-1E0 / z AS FLOAT),"
            + " ARRAY[z + 1.5E0, z / z, 1E0 / z, CAST(NULL AS DOUBLE)],"
            + " MAP['k', CAST(z / z AS FLOAT), 'l', CAST(z + 0.5E0 AS FLOAT)],"
            + " CAST(ROW(1E0 / z, z + 2E0) AS ROW<x DOUBLE, y DOUBLE>) FROM zero").await();
        String row = rows(got, 1).get(0);
        assertTrue(row.startsWith("(nan, -1.0, "), row);
        assertTrue(row.contains(", -3.0, 0.5, -4.0, "), row);
        assertTrue(row.endsWith(", '{\"n\":1,\"list\":[1.5,null,null,null],\"m\":{\"l\":0.5},\"h\":{\"y\":2.0}}')"), row);
    }

    @Test
    void aFormatOfFlinkMayBeUsed() throws Exception {
        master.apply("formatted", "{}");
        Path got = master.trainer("formatted");
        TableEnvironment t = flink();
        t.executeSql("CREATE TABLE formatted (n BIGINT) WITH ('connector' = 'headrace', 'dataset' = 'formatted', 'format' = 'json',"
            + " 'sink.delivery-guarantee' = 'at-least-once', 'sink.compression' = 'none', 'sink.parallelism' = '1', 'state' = '" + master.state() + "')");
        t.executeSql("INSERT INTO formatted VALUES (1), (2), (3)").await();
        assertEquals(List.of("(1,)", "(2,)", "(3,)"), rows(got, 3));
    }

    /** The format raw writes null for a NULL. The row is not lost: its record has a null value. */
    @Test
    void aRowThatAFormatWritesAsNullIsARecord() throws Exception {
        master.apply("plain", "{}", "\n  format: raw\n  columns:\n"
            + "    - {name: a_value, path: $value, dtype: string}\n"
            + "    - {name: b_null, path: $tombstone, dtype: bool}\n");
        Path got = master.trainer("plain");
        TableEnvironment t = flink();
        t.executeSql("CREATE TABLE plain (v STRING) WITH ('connector' = 'headrace', 'dataset' = 'plain', 'format' = 'raw',"
            + " 'sink.parallelism' = '1', 'state' = '" + master.state() + "')");
        t.executeSql("INSERT INTO plain VALUES ('x'), (CAST(NULL AS STRING)), ('y')").await();
        assertEquals(List.of("('', True)", "('x', False)", "('y', False)"), rows(got, 3).stream().sorted().collect(Collectors.toList()));
    }

    /** The master's keys are right, so a failure with wrong keys of their own proves that the tasks use theirs. */
    @Test
    void tasksPutTheirChunksIntoTheBucketThemselves() throws Exception {
        try (TestS3 s3 = TestS3.start(); TestMaster master = TestMaster.start(s3.landing("flink"))) {
            master.agent();
            master.apply("uploaded", "{}");
            long before = chunks(s3);
            TableEnvironment t = flink();
            t.executeSql("CREATE TABLE uploaded (n BIGINT) WITH ('connector' = 'headrace', 'dataset' = 'uploaded', 'sink.upload' = 'true',"
                + " 'sink.parallelism' = '1', 'state' = '" + master.state() + "')");
            Path got = master.trainer("uploaded");
            t.executeSql("INSERT INTO uploaded VALUES (1), (2), (3)").await();
            assertEquals(List.of("(1,)", "(2,)", "(3,)"), rows(master, got, 3));
            assertEquals(before + 1, chunks(s3));
            System.setProperty("aws.secretAccessKey", "not the secret key");
            Exception e = assertThrows(Exception.class, () -> t.executeSql("INSERT INTO uploaded VALUES (4)").await());
            assertTrue(causes(e).contains("the service answers 403"), causes(e));
        }
    }

    /** Counts the chunks in the bucket, without the objects in which the master notes what is visible. */
    private static long chunks(TestS3 s3) throws Exception {
        return s3.list("flink").stream().filter(key -> !key.contains("/visible/")).count();
    }

    private static String causes(Throwable e) {
        StringBuilder all = new StringBuilder();
        for (Throwable c = e; c != null; c = c.getCause()) {
            all.append(c.getMessage()).append('\n');
        }
        return all.toString();
    }

    private static void refused(String columns, String options, String... parts) {
        TableEnvironment t = flink();
        t.executeSql("CREATE TABLE bad (" + columns + ") WITH ('connector' = 'headrace'" + options + ")");
        Exception e = assertThrows(Exception.class, () -> t.explainSql("INSERT INTO bad SELECT * FROM bad_source".replace("SELECT * FROM bad_source",
            columns.contains("INTERVAL") ? "VALUES (INTERVAL '1' DAY)" : columns.contains("VARBINARY") ? "VALUES (CAST(X'00' AS VARBINARY(4)))" : "VALUES (1)")));
        for (String part : parts) {
            assertTrue(causes(e).contains(part), causes(e));
        }
    }

    @Test
    void mistakesAreNamed() {
        refused("n INT", ", 'master' = '127.0.0.1:1'", "dataset");
        refused("n INT", ", 'dataset' = 'd'", "master is missing");
        refused("n INT", ", 'dataset' = 'd', 'master' = '10.0.0.1:7070'", "table default_catalog.default_database.bad", "on another machine", "tls-ca");
        refused("n INT", ", 'dataset' = 'd', 'master' = '127.0.0.1:1', 'topic' = 'x'", "Unsupported options", "topic");
        refused("n INT", ", 'dataset' = 'd', 'master' = '127.0.0.1:1', 'sink.delivery-guarantee' = 'none'", "NONE would lose records");
        refused("b VARBINARY(4)", ", 'dataset' = 'd', 'master' = '127.0.0.1:1'", "column b has type VARBINARY(4)", "CAST");
    }
}
