package io.github.headrace.flink;

import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;

/** What differs between the lines of Flink: 1.20 still asks for a writer in an older way. */
interface SinkOfThisFlink<T> extends Sink<T> {
    @Deprecated
    @Override
    default SinkWriter<T> createWriter(Sink.InitContext context) {
        throw new UnsupportedOperationException("Flink 1.20 and newer call createWriter(WriterInitContext)");
    }
}
