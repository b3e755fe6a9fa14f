/** The SQL connector {@code 'connector' = 'headrace'} (docs/flink.md): rows become JSON records, columns by name. */
package io.github.headrace.flink.table;
