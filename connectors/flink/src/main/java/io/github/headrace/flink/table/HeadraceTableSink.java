package io.github.headrace.flink.table;

import io.github.headrace.flink.HeadraceSinkBuilder;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.format.EncodingFormat;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.types.DataType;

/** A table that rows are inserted into. Updates and deletions are refused by the planner. */
final class HeadraceTableSink implements DynamicTableSink {
    private final HeadraceSinkBuilder<RowData> builder;
    private final EncodingFormat<SerializationSchema<RowData>> format; // null: JSON by column name
    private final DataType rows;
    private final Integer parallelism;
    private final String table;

    HeadraceTableSink(HeadraceSinkBuilder<RowData> builder, EncodingFormat<SerializationSchema<RowData>> format, DataType rows, Integer parallelism, String table) {
        this.builder = builder;
        this.format = format;
        this.rows = rows;
        this.parallelism = parallelism;
        this.table = table;
    }

    @Override
    public ChangelogMode getChangelogMode(ChangelogMode requested) {
        return ChangelogMode.insertOnly();
    }

    @Override
    public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
        if (format != null) {
            builder.setValueSerializationSchema(format.createRuntimeEncoder(context, rows));
        }
        return SinkV2Provider.of(builder.build(), parallelism);
    }

    @Override
    public DynamicTableSink copy() {
        return new HeadraceTableSink(builder, format, rows, parallelism, table);
    }

    @Override
    public String asSummaryString() {
        return "Headrace table " + table;
    }
}
