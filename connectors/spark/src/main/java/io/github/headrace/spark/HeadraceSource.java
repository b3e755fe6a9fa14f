package io.github.headrace.spark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The format {@code headrace}. It only writes: trainers read with the headrace package. */
public class HeadraceSource implements TableProvider, DataSourceRegister {
    @Override
    public String shortName() {
        return "headrace";
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        throw new UnsupportedOperationException("the format headrace only writes: trainers read a dataset with headrace.dataset(...)");
    }

    /** A write has the schema of its DataFrame. */
    @Override
    public boolean supportsExternalMetadata() {
        return true;
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new HeadraceTable(schema);
    }
}
