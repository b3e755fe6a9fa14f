package io.github.headrace.spark;

import java.io.IOException;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.types.StructType;

/**
 * The format {@code headrace} in a driver that kills itself with kill -9 before or after a commit, or
 * commits twice. HEADRACE_TEST_KILL is before:N, after:N or twice:N, where N is Spark's epoch (0 for a batch).
 */
public final class KillingSource extends HeadraceSource {
    @Override
    public String shortName() {
        return "headrace-killing";
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        SupportsWrite real = (SupportsWrite) super.getTable(schema, partitioning, properties);
        return new SupportsWrite() {
            @Override
            public String name() {
                return real.name();
            }

            @Override
            @Deprecated
            public StructType schema() {
                return schema;
            }

            @Override
            public Set<TableCapability> capabilities() {
                return real.capabilities();
            }

            @Override
            public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
                Write write = real.newWriteBuilder(info).build();
                return new WriteBuilder() {
                    @Override
                    public Write build() {
                        return new Killing(write);
                    }
                };
            }
        };
    }

    private static void around(long epoch, Runnable commit) {
        String what = System.getenv().getOrDefault("HEADRACE_TEST_KILL", "");
        kill(what.equals("before:" + epoch));
        commit.run();
        if (what.equals("twice:" + epoch)) {
            commit.run();
        }
        kill(what.equals("after:" + epoch));
    }

    private static void kill(boolean now) {
        if (now) {
            try {
                new ProcessBuilder("kill", "-9", Long.toString(ProcessHandle.current().pid())).start().waitFor();
                Thread.sleep(Long.MAX_VALUE);
            } catch (IOException | InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    private static final class Killing implements Write {
        private final Write real;

        Killing(Write real) {
            this.real = real;
        }

        @Override
        public BatchWrite toBatch() {
            BatchWrite b = real.toBatch();
            return new BatchWrite() {
                @Override
                public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
                    return b.createBatchWriterFactory(info);
                }

                @Override
                public boolean useCommitCoordinator() {
                    return b.useCommitCoordinator();
                }

                @Override
                public void commit(WriterCommitMessage[] messages) {
                    around(0, () -> b.commit(messages));
                }

                @Override
                public void abort(WriterCommitMessage[] messages) {
                    b.abort(messages);
                }
            };
        }

        @Override
        public StreamingWrite toStreaming() {
            StreamingWrite s = real.toStreaming();
            return new StreamingWrite() {
                @Override
                public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
                    return s.createStreamingWriterFactory(info);
                }

                @Override
                public void commit(long epoch, WriterCommitMessage[] messages) {
                    around(epoch, () -> s.commit(epoch, messages));
                }

                @Override
                public void abort(long epoch, WriterCommitMessage[] messages) {
                    s.abort(epoch, messages);
                }
            };
        }
    }
}
