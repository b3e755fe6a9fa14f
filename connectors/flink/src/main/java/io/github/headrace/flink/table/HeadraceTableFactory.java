package io.github.headrace.flink.table;

import io.github.headrace.flink.HeadraceSink;
import io.github.headrace.flink.HeadraceSinkBuilder;
import java.util.Optional;
import java.util.Set;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.table.api.ValidationException;
import org.apache.flink.table.connector.format.EncodingFormat;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.factories.SerializationFormatFactory;
import org.apache.flink.table.types.DataType;

/** Finds {@code 'connector' = 'headrace'}. */
public final class HeadraceTableFactory implements DynamicTableSinkFactory {
    @Override
    public String factoryIdentifier() {
        return "headrace";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of(HeadraceOptions.DATASET);
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return Set.of(HeadraceOptions.MASTER, HeadraceOptions.STATE, HeadraceOptions.TOKEN_FILE, HeadraceOptions.TLS_CERT, HeadraceOptions.TLS_KEY,
            HeadraceOptions.TLS_CA, HeadraceOptions.SINK_ID, HeadraceOptions.GUARANTEE, HeadraceOptions.COMMIT_INTERVAL, HeadraceOptions.COMPRESSION, HeadraceOptions.UPLOAD,
            FactoryUtil.FORMAT, FactoryUtil.SINK_PARALLELISM);
    }

    @Override
    public DynamicTableSink createDynamicTableSink(Context context) {
        FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
        Optional<EncodingFormat<SerializationSchema<RowData>>> format =
            helper.discoverOptionalEncodingFormat(SerializationFormatFactory.class, FactoryUtil.FORMAT);
        helper.validate();
        ReadableConfig o = helper.getOptions();
        HeadraceSinkBuilder<RowData> builder = HeadraceSink.<RowData>builder()
            .setDataset(o.get(HeadraceOptions.DATASET))
            .setSinkId(o.get(HeadraceOptions.SINK_ID))
            .setDeliveryGuarantee(o.get(HeadraceOptions.GUARANTEE))
            .setCommitInterval(o.get(HeadraceOptions.COMMIT_INTERVAL))
            .setCompression(o.get(HeadraceOptions.COMPRESSION))
            .setUpload(o.get(HeadraceOptions.UPLOAD));
        o.getOptional(HeadraceOptions.MASTER).ifPresent(builder::setMaster);
        o.getOptional(HeadraceOptions.STATE).ifPresent(builder::setState);
        o.getOptional(HeadraceOptions.TOKEN_FILE).ifPresent(builder::setTokenFile);
        builder.setTls(o.get(HeadraceOptions.TLS_CERT), o.get(HeadraceOptions.TLS_KEY), o.get(HeadraceOptions.TLS_CA));
        DataType rows = context.getPhysicalRowDataType();
        String table = context.getObjectIdentifier().asSummaryString();
        try {
            if (!format.isPresent()) {
                builder.setValueSerializationSchema(new RowToJson(rows.getLogicalType()));
                builder.build();
            }
            return new HeadraceTableSink(builder, format.orElse(null), rows, o.getOptional(FactoryUtil.SINK_PARALLELISM).orElse(null), table);
        } catch (IllegalArgumentException e) {
            throw new ValidationException("table " + table + ": " + e.getMessage(), e);
        }
    }
}
