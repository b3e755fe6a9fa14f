"""The readers that bench.py measures: one per process, Pulsar to numpy batches.

    python -m bench.pulsar.readers WHICH FORM "SERVICE ADMIN" RECORDS [check]

They use the decoders of bench/kafka/readers.py, for the topics `floats` and `tsv`.

headrace   the product: a running agent, `stream.step()` after each batch of 1,024. Its
           time ends when all steps are durable.
ordinary   as most programs do it: pulsar-client with its default settings, receive() and
           acknowledge() for each message, np.frombuffer and np.stack, or split, for
           each record of 1,000.
tuned      the best that is known in Python: batch_receive() with a receiver queue of
           10,000, one cumulative acknowledgement per partition and batch, then
           np.frombuffer or pyarrow's CSV reader for each batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from bench import timed
from bench.kafka import readers as kafka

TUNED_QUEUE = 10_000


class Message:
    def __init__(self, body: bytes) -> None:
        self.body = body

    def value(self) -> bytes:
        return self.body

    def error(self) -> None:
        return None


class Consumer(kafka.Consumer):
    """pulsar-client, from a topic's beginning."""

    def __init__(self, form: str, broker: str, settings: dict[str, Any], size: int) -> None:
        import pulsar

        self.pulsar, self.form, self.size, self.tuned = pulsar, form, size, bool(settings)
        self.client = pulsar.Client(broker.split()[0], logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))

    def subscribe(self, **more: Any) -> Any:
        earliest = self.pulsar.InitialPosition.Earliest
        return self.client.subscribe(self.form, f"bench-{time.monotonic_ns()}", initial_position=earliest, **more)

    def messages(self) -> Iterator[list[Message]]:
        return self.many() if self.tuned else self.each()

    def each(self) -> Iterator[list[Message]]:
        consumer = self.subscribe()
        while True:
            got = []
            for _ in range(self.size):
                message = consumer.receive()
                got.append(Message(message.data()))
                consumer.acknowledge(message)
            yield got

    def many(self) -> Iterator[list[Message]]:
        policy = self.pulsar.ConsumerBatchReceivePolicy(self.size, -1, 1000)
        consumer = self.subscribe(receiver_queue_size=TUNED_QUEUE, batch_receive_policy=policy)
        while True:
            if messages := consumer.batch_receive():
                for last in {m.topic_name(): m for m in messages}.values():
                    consumer.acknowledge_cumulative(last)
                yield [Message(m.data()) for m in messages]

    def end(self) -> None:
        self.client.close()


class Ordinary(kafka.Ordinary, Consumer):
    """Batches of 1,000 records, as with Kafka."""


class Tuned(kafka.Tuned, Consumer):
    """Batches as batch_receive gives them."""


if __name__ == "__main__":
    timed.main({"headrace": kafka.Headrace, "ordinary": Ordinary, "tuned": Tuned})
