package io.github.headrace.spark;

import java.util.EnumSet;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;

/** A dataset, as Spark sees it. */
final class HeadraceTable implements SupportsWrite {
    private final StructType schema;

    HeadraceTable(StructType schema) {
        this.schema = schema;
    }

    @Override
    public String name() {
        return "headrace";
    }

    @Override
    @Deprecated
    public StructType schema() {
        return schema;
    }

    /** Any schema: the dataset's spec says which fields of a record become columns. */
    @Override
    public Set<TableCapability> capabilities() {
        return EnumSet.of(TableCapability.BATCH_WRITE, TableCapability.STREAMING_WRITE, TableCapability.ACCEPT_ANY_SCHEMA);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        Settings settings = Settings.of(info.options());
        RowRecords records = RowRecords.of(info.schema(), settings);
        return new WriteBuilder() {
            @Override
            public HeadraceWrite build() {
                return new HeadraceWrite(settings, records, info.queryId());
            }
        };
    }
}
