package io.github.headrace.flink;

import org.apache.flink.api.connector.sink2.Sink;

/** What differs between the lines of Flink: nothing in 2.x. */
interface SinkOfThisFlink<T> extends Sink<T> {}
