package io.github.headrace.flink.table;

import java.io.Serializable;
import java.time.LocalDate;
import java.time.LocalTime;
import java.util.List;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.table.data.ArrayData;
import org.apache.flink.table.data.MapData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.types.logical.ArrayType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.LogicalTypeFamily;
import org.apache.flink.table.types.logical.MapType;
import org.apache.flink.table.types.logical.RowType;

/**
 * Writes a row as one JSON object with a member for each column, as a dataset with {@code format:
 * json} reads it. NULL is left out, which is a missing value there; inside an array it is {@code
 * null}. NaN and infinity are written as NULL is: JSON has no number for them, and the dataset would
 * stop at a text in the place of a number. Times are whole milliseconds since 1970, dates and times
 * of day are ISO text.
 */
final class RowToJson implements SerializationSchema<RowData> {
    private static final long serialVersionUID = 1L;

    /** Writes a value that is not {@link #absent}. */
    private interface Writer extends Serializable {
        void write(JsonText out, Object value);
    }

    private final Writer row;

    RowToJson(LogicalType type) {
        row = rows("", (RowType) type);
    }

    @Override
    public byte[] serialize(RowData element) {
        JsonText out = new JsonText();
        row.write(out, element);
        return out.utf8();
    }

    /** Whether JSON has no value for it: NULL, NaN and infinity. */
    private static boolean absent(Object value) {
        return value == null || value instanceof Double && !Double.isFinite((Double) value) || value instanceof Float && !Float.isFinite((Float) value);
    }

    private static Writer rows(String path, RowType type) {
        List<String> names = type.getFieldNames();
        Writer[] writers = new Writer[names.size()];
        RowData.FieldGetter[] getters = new RowData.FieldGetter[names.size()];
        for (int i = 0; i < writers.length; i++) {
            writers[i] = of(path + names.get(i), type.getTypeAt(i));
            getters[i] = RowData.createFieldGetter(type.getTypeAt(i), i);
        }
        String[] members = names.toArray(new String[0]);
        return (out, value) -> {
            out.open('{');
            for (int i = 0; i < writers.length; i++) {
                Object v = getters[i].getFieldOrNull((RowData) value);
                if (!absent(v)) {
                    out.name(members[i]);
                    writers[i].write(out, v);
                }
            }
            out.close('}');
        };
    }

    private static Writer of(String path, LogicalType type) {
        switch (type.getTypeRoot()) {
            case BOOLEAN:
            case TINYINT:
            case SMALLINT:
            case INTEGER:
            case BIGINT:
            case FLOAT:
            case DOUBLE:
            case DECIMAL:
                return (out, v) -> out.raw(v.toString());
            case CHAR:
            case VARCHAR:
                return (out, v) -> out.text(v.toString());
            case DATE:
                return (out, v) -> out.text(LocalDate.ofEpochDay((Integer) v).toString());
            case TIME_WITHOUT_TIME_ZONE:
                return (out, v) -> out.text(LocalTime.ofNanoOfDay((Integer) v * 1_000_000L).toString());
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                return (out, v) -> out.raw(Long.toString(((TimestampData) v).getMillisecond()));
            case ARRAY: {
                LogicalType of = ((ArrayType) type).getElementType();
                return array(of(path + "[]", of), ArrayData.createElementGetter(of));
            }
            case MAP:
                return map(path, (MapType) type);
            case ROW:
                return rows(path + ".", (RowType) type);
            default:
                throw new IllegalArgumentException("column " + path + " has type " + type.asSummaryString()
                    + ", which JSON has no form for: CAST it in the query, or set 'format'");
        }
    }

    private static Writer array(Writer element, ArrayData.ElementGetter get) {
        return (out, value) -> {
            ArrayData a = (ArrayData) value;
            out.open('[');
            for (int i = 0; i < a.size(); i++) {
                Object v = get.getElementOrNull(a, i);
                out.next();
                if (absent(v)) {
                    out.raw("null");
                } else {
                    element.write(out, v);
                }
            }
            out.close(']');
        };
    }

    private static Writer map(String path, MapType type) {
        if (!type.getKeyType().is(LogicalTypeFamily.CHARACTER_STRING)) {
            throw new IllegalArgumentException("column " + path + " has type " + type.asSummaryString() + ": in JSON the keys of a map are text; CAST them");
        }
        ArrayData.ElementGetter keys = ArrayData.createElementGetter(type.getKeyType());
        ArrayData.ElementGetter values = ArrayData.createElementGetter(type.getValueType());
        Writer writer = of(path + "{}", type.getValueType());
        return (out, value) -> {
            MapData m = (MapData) value;
            out.open('{');
            for (int i = 0; i < m.size(); i++) {
                Object k = keys.getElementOrNull(m.keyArray(), i);
                Object v = values.getElementOrNull(m.valueArray(), i);
                if (k != null && !absent(v)) {
                    out.name(k.toString());
                    writer.write(out, v);
                }
            }
            out.close('}');
        };
    }
}
