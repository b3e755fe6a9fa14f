/**
 * The Java client for pushed records (docs/LANDING.md): it puts records into a dataset whose source
 * is {@code landing}, in transactions that come once or not at all. The connectors for Flink and
 * Spark are built on it.
 *
 * <pre>{@code
 * Target master = Target.builder().master("127.0.0.1:7070").tokenFile("/home/me/.headrace/token").build();
 * try (Pusher pusher = Pusher.open(master, "clicks")) {
 *   Transaction t = pusher.begin("orders-2026-01-31");  // the same id again adds nothing
 *   t.push(PushRecord.of(line));                        // staged in chunks
 *   Committed done = t.commit();                        // visible, all or nothing
 * }
 * }</pre>
 *
 * <p>A call waits and tries again while the master is away or the dataset is full. After a crash of
 * the producer, begin a transaction with the same id and push the same records: if it was committed,
 * the commit says so.
 */
package io.github.headrace.push;
