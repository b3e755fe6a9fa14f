"""Writes transactions into partition 0 of a topic, as another client does.

While one transaction is open, it prints a JSON list of what a reader of committed
records sees. After a line on standard input it commits that transaction and prints
the list again, with its records.
"""

import json
import sys

from confluent_kafka import Producer

bootstrap, topic, run = sys.argv[1:]


def producer(name, codec="none"):
    p = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{run}-{name}", "compression.type": codec})
    p.init_transactions(300)
    return p


plain = Producer({"bootstrap.servers": bootstrap})
seen, number = [], 0


def write(p, n, keep):
    """Writes n records in a batch of their own."""
    global number
    for _ in range(n):
        value = f"{'keep' if keep else 'drop'}-{number}"
        p.produce(topic, value.encode(), partition=0)
        number += 1
        if keep:
            seen.append(value)
    p.flush(300)


one, two, three = producer("one"), producer("two", "zstd"), producer("three", "snappy")
for i in range(4):
    write(plain, 3, True)
    one.begin_transaction()
    write(one, 5, i % 2 == 0)
    if i % 2 == 0:
        one.commit_transaction(300)
    else:
        one.abort_transaction(300)
# Two transactions at the same time, with plain records in between: one is committed, two is aborted.
for i in range(5):
    one.begin_transaction()
    two.begin_transaction()
    for _ in range(4):
        write(one, 2, True)
        write(two, 3, False)
        write(plain, 1, True)
    if i % 2 == 0:
        two.abort_transaction(300)
        one.commit_transaction(300)
    else:
        one.commit_transaction(300)
        two.abort_transaction(300)
# The same producer commits records after the ones that it has aborted.
two.begin_transaction()
write(two, 7, True)
two.commit_transaction(300)
two.begin_transaction()
write(two, 1, False)
two.abort_transaction(300)
print(json.dumps(seen), flush=True)

three.begin_transaction()
write(three, 4, True)
write(plain, 2, True)
print("open", flush=True)
sys.stdin.readline()
three.commit_transaction(300)
print(json.dumps(seen), flush=True)
