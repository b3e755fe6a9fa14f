package io.github.headrace.spark;

import static java.time.format.DateTimeFormatter.ISO_LOCAL_DATE_TIME;

import java.io.Serializable;
import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.Base64;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.NullType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/**
 * Rows as JSON objects, as Spark's to_json writes them: a null field is left out, times are
 * ISO 8601 in UTC, and binary is base64. NaN and infinity are written as null is: JSON has no number
 * for them, and the dataset would stop at a text in the place of a number.
 */
final class JsonRows implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final long MICROS = 1_000_000L;

    private final Struct root;

    private JsonRows(Struct root) {
        this.root = root;
    }

    static JsonRows of(StructType schema) {
        return new JsonRows(new Struct("", schema));
    }

    String of(SpecializedGetters row) {
        StringBuilder out = new StringBuilder(64);
        root.object(out, row);
        return out.toString();
    }

    /** Writes the value at a place of a row or of an array, which is not {@link #absent}. */
    private interface Value extends Serializable {
        void write(StringBuilder out, SpecializedGetters from, int at);
    }

    /** Whether JSON has no value for what is at a place: null, NaN and infinity. */
    private interface Absent extends Serializable {
        boolean is(SpecializedGetters from, int at);
    }

    private static Absent absent(DataType t) {
        if (t instanceof DoubleType) {
            return (from, at) -> from.isNullAt(at) || !Double.isFinite(from.getDouble(at));
        } else if (t instanceof FloatType) {
            return (from, at) -> from.isNullAt(at) || !Float.isFinite(from.getFloat(at));
        }
        return (from, at) -> from.isNullAt(at);
    }

    private static Value of(String name, DataType t) {
        if (t instanceof StringType) {
            return (out, from, at) -> text(out, from.getUTF8String(at).toString());
        } else if (t instanceof IntegerType) {
            return (out, from, at) -> out.append(from.getInt(at));
        } else if (t instanceof LongType) {
            return (out, from, at) -> out.append(from.getLong(at));
        } else if (t instanceof DoubleType) {
            return (out, from, at) -> out.append(from.getDouble(at));
        } else if (t instanceof FloatType) {
            return (out, from, at) -> out.append(from.getFloat(at));
        } else if (t instanceof BooleanType) {
            return (out, from, at) -> out.append(from.getBoolean(at));
        } else if (t instanceof ShortType) {
            return (out, from, at) -> out.append(from.getShort(at));
        } else if (t instanceof ByteType) {
            return (out, from, at) -> out.append(from.getByte(at));
        } else if (t instanceof DecimalType) {
            DecimalType d = (DecimalType) t;
            int precision = d.precision();
            int scale = d.scale();
            return (out, from, at) -> {
                BigDecimal x = from.getDecimal(at, precision, scale).toJavaBigDecimal();
                out.append(x.toPlainString());
            };
        } else if (t instanceof DateType) {
            return (out, from, at) -> out.append('"').append(LocalDate.ofEpochDay(from.getInt(at))).append('"');
        } else if (t instanceof TimestampType) {
            return (out, from, at) -> out.append('"').append(instant(from.getLong(at))).append('"');
        } else if (t instanceof TimestampNTZType) {
            return (out, from, at) -> out.append('"').append(ISO_LOCAL_DATE_TIME.format(LocalDateTime.ofInstant(instant(from.getLong(at)), ZoneOffset.UTC))).append('"');
        } else if (t instanceof BinaryType) {
            return (out, from, at) -> out.append('"').append(Base64.getEncoder().encodeToString(from.getBinary(at))).append('"');
        } else if (t instanceof NullType) {
            return (out, from, at) -> out.append("null");
        } else if (t instanceof ArrayType) {
            DataType of = ((ArrayType) t).elementType();
            Value element = of(name + "[]", of);
            Absent absent = absent(of);
            return (out, from, at) -> array(out, from.getArray(at), element, absent);
        } else if (t instanceof StructType) {
            Struct inner = new Struct(name + ".", (StructType) t);
            return (out, from, at) -> inner.object(out, from.getStruct(at, inner.names.length));
        } else if (t instanceof MapType && ((MapType) t).keyType() instanceof StringType) {
            DataType of = ((MapType) t).valueType();
            Value value = of(name + "{}", of);
            Absent absent = absent(of);
            return (out, from, at) -> map(out, from.getMap(at), value, absent);
        }
        throw new IllegalArgumentException("column " + name + " is " + t.simpleString() + ", which has no JSON: cast it, or leave it out");
    }

    private static final class Struct implements Serializable {
        private static final long serialVersionUID = 1L;
        private final String[] names; // as JSON, with the colon
        private final Value[] values;
        private final Absent[] absent;

        Struct(String prefix, StructType t) {
            StructField[] fields = t.fields();
            names = new String[fields.length];
            values = new Value[fields.length];
            absent = new Absent[fields.length];
            for (int i = 0; i < fields.length; i++) {
                StringBuilder name = new StringBuilder();
                text(name, fields[i].name());
                names[i] = name.append(':').toString();
                values[i] = of(prefix + fields[i].name(), fields[i].dataType());
                absent[i] = absent(fields[i].dataType());
            }
        }

        private static Value of(String name, DataType t) {
            return JsonRows.of(name, t);
        }

        private static Absent absent(DataType t) {
            return JsonRows.absent(t);
        }

        void object(StringBuilder out, SpecializedGetters from) {
            out.append('{');
            boolean more = false;
            for (int i = 0; i < names.length; i++) {
                if (absent[i].is(from, i)) {
                    continue;
                }
                if (more) {
                    out.append(',');
                }
                more = true;
                out.append(names[i]);
                values[i].write(out, from, i);
            }
            out.append('}');
        }
    }

    private static void array(StringBuilder out, ArrayData a, Value element, Absent absent) {
        out.append('[');
        for (int i = 0; i < a.numElements(); i++) {
            if (i > 0) {
                out.append(',');
            }
            if (absent.is(a, i)) {
                out.append("null");
            } else {
                element.write(out, a, i);
            }
        }
        out.append(']');
    }

    private static void map(StringBuilder out, MapData m, Value value, Absent absent) {
        ArrayData keys = m.keyArray();
        ArrayData values = m.valueArray();
        out.append('{');
        for (int i = 0; i < m.numElements(); i++) {
            if (i > 0) {
                out.append(',');
            }
            text(out, keys.getUTF8String(i).toString());
            out.append(':');
            if (absent.is(values, i)) {
                out.append("null");
            } else {
                value.write(out, values, i);
            }
        }
        out.append('}');
    }

    private static Instant instant(long micros) {
        return Instant.ofEpochSecond(Math.floorDiv(micros, MICROS), 1000 * Math.floorMod(micros, MICROS));
    }

    private static void text(StringBuilder out, String s) {
        out.append('"');
        for (int i = 0; i < s.length(); i++) {
            char c = s.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
