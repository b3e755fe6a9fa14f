/**
 * Spark's DataFrames and streaming queries into a dataset whose source is {@code landing}
 * (docs/spark.md).
 *
 * <ul>
 * <li>{@link io.github.headrace.spark.HeadraceSource}: the format {@code headrace}
 * <li>{@link io.github.headrace.spark.Settings}: its options
 * <li>{@link io.github.headrace.spark.HeadraceWrite}: on the driver: one commit for each write or epoch
 * <li>{@link io.github.headrace.spark.TaskWriter}: in a task: rows are staged
 * <li>{@link io.github.headrace.spark.RowRecords}: a row becomes a record
 * </ul>
 */
package io.github.headrace.spark;
