package io.github.headrace.spark;

import io.github.headrace.push.PushRecord;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/** Makes a record of a row: the row as JSON, or the bytes of one column. */
final class RowRecords implements Serializable {
    private static final long serialVersionUID = 1L;

    private final StructType schema;
    private final JsonRows json; // null: value is a column
    private final int value;
    private final int key;
    private final int time;

    private RowRecords(StructType schema, Settings settings) {
        this.schema = schema;
        value = column("value", settings.value);
        key = column("key", settings.key);
        time = column("time", settings.time);
        json = value < 0 ? JsonRows.of(schema) : null;
        if (value >= 0 && !isBytes(value)) {
            throw wrong("value", value, "string or binary");
        }
        if (key >= 0 && !isBytes(key)) {
            throw wrong("key", key, "string or binary: cast it");
        }
        if (time >= 0 && !(schema.fields()[time].dataType() instanceof TimestampType || schema.fields()[time].dataType() instanceof TimestampNTZType)) {
            throw wrong("time", time, "a timestamp");
        }
    }

    static RowRecords of(StructType schema, Settings settings) {
        return new RowRecords(schema, settings);
    }

    private int column(String option, String name) {
        if (name == null) {
            return -1;
        }
        for (int i = 0; i < schema.size(); i++) {
            if (schema.fields()[i].name().equals(name)) {
                return i;
            }
        }
        throw new IllegalArgumentException("option " + option + ": there is no column " + name + " among " + String.join(", ", schema.fieldNames()));
    }

    private boolean isBytes(int column) {
        DataType t = schema.fields()[column].dataType();
        return t instanceof StringType || t instanceof BinaryType;
    }

    private IllegalArgumentException wrong(String option, int column, String needed) {
        return new IllegalArgumentException("option " + option + ": column " + schema.fields()[column].name() + " is "
            + schema.fields()[column].dataType().simpleString() + ", and it must be " + needed);
    }

    PushRecord of(InternalRow row) {
        byte[] k = key < 0 ? null : bytes(row, key);
        byte[] v = value < 0 ? json.of(row).getBytes(StandardCharsets.UTF_8) : bytes(row, value);
        PushRecord r;
        if (v != null) {
            r = PushRecord.of(v).withKey(k);
        } else if (k != null) {
            r = PushRecord.deleted(k);
        } else {
            throw new IllegalArgumentException("a row has neither a value in column " + schema.fields()[value].name() + " nor a key");
        }
        return time < 0 || row.isNullAt(time) ? r : r.withTime(Math.floorDiv(row.getLong(time), 1000L));
    }

    private byte[] bytes(InternalRow row, int column) {
        if (row.isNullAt(column)) {
            return null;
        }
        return schema.fields()[column].dataType() instanceof BinaryType ? row.getBinary(column) : row.getUTF8String(column).getBytes();
    }
}
