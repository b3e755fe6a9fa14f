/**
 * A sink for Flink that pushes records into a dataset whose source is {@code landing}
 * (docs/flink.md). Exactly once: a writer stages its records at the master, and the committer makes
 * them visible after the checkpoint; a commit that is repeated adds nothing.
 *
 * <p>HeadraceSink and its builder; HeadraceWriter stages, HeadraceCommitter commits, and a
 * HeadraceCommittable goes from one to the other through Flink's checkpoints. The package
 * {@code table} is the SQL connector.
 */
package io.github.headrace.flink;
