"""The texts of docs/BENCHMARKS.md for each benchmark: its title, what was compared, and what each figure
means, with its goal."""

from __future__ import annotations

from typing import NamedTuple


class Bench(NamedTuple):
    title: str
    text: str
    meanings: dict[str, str]  # of each figure, with the goal with which it is compared


COSTS = {
    "cost_interval": "95 % confidence interval of that median; goal at most 0.02",
    "cost_range": "lowest, highest pair",
    "cpu_cost": "the same in CPU time of trainer, agent and master",
    "cpu_cost_interval": "",
    "cpu_cost_range": "",
    "cpu_us_per_batch": "CPU of all three for a batch's step; divide it by the time of your own step to know your cost",
    "trainer_cpu_us_per_batch": "the part of it in the trainer's process",
    "exact_rows_per_second": "a batch has 1,024 rows",
    "silent_rows_per_second": "",
}

LOAD = (
    "`load` is the machine's load before the run. Above 0.5, other programs ran at the same time, and only the CPU "
    "figures count. Each figure is [median, min, max] over the rounds."
)

# bench/queues.py prints these.
QUEUES = {
    **{
        f"{form}_{name}": meaning
        for form in ("floats", "tsv")
        for name, meaning in {
            "vs_ordinary": "records/s over ordinary's; goal 5",
            "vs_tuned": "records/s over tuned's; goal 2",
            "trainer_cpu_of_ordinary": "CPU per record of the trainer's process over that of ordinary's",
            "all_cpu_of_ordinary": "CPU per record of trainer and `headrace up` over all processes of ordinary's",
            "trainer_cpu_of_tuned": "the same over tuned's",
            "all_cpu_of_tuned": "the same over tuned's",
            **{
                f"{who}_{figure}": what.format(who=who)
                for who in ("headrace", "tuned", "ordinary")
                for figure, what in {
                    "records_per_s": "{who}: records/s",
                    "all_cpu_s_per_million": "CPU seconds per million records, the broker's not counted",
                }.items()
            },
            "up_mib": "the most memory that `headrace up` has had resident, MiB",
        }.items()
    },
    "load": "the machine's load before the run, of 2 cores",
}

AGES = {
    "headrace_p50_ms": "age in ms, half of the records are younger",
    "headrace_p99_ms": "99 in 100 are younger; goal at most 50",
    "confluent_p50_ms": "the same with confluent-kafka",
    "confluent_p99_ms": "",
    "pulsar_p50_ms": "the same with pulsar-client",
    "pulsar_p99_ms": "",
    "acknowledged_p50_ms": "age of a record when the broker has acknowledged it to the producer",
    "acknowledged_p99_ms": "",
    "headrace_p999_ms": "999 in 1,000 are younger",
    "confluent_p999_ms": "",
    "headrace_max_ms": "the oldest",
    "confluent_max_ms": "",
    "headrace_rows_per_batch": "",
    "confluent_rows_per_batch": "",
    "headrace_trainer_cores": "cores that the trainer's process kept busy",
    "headrace_up_cores": "cores that `headrace up` kept busy",
    "headrace_ready_seconds": "seconds from its first batch until it gets nine tenths of what is written, none of it "
    "older than a second; at least 3",
    "confluent_trainer_cores": "",
    "idle_up_cores": "cores that `headrace up` kept busy while nothing was produced",
    "idle_trainer_cores": "cores that a waiting trainer kept busy meanwhile",
    "load": "the machine's load before the run, of 2 cores",
    "source": "",
    "partitions": "",
    "rate": "records/s",
    "seconds": "of each round",
    "rounds": "",
}

BENCHES = {
    "lease": Bench(
        "Durable lease and ack",
        "A pair is one grant and its ack, answered after fsync; the client is another process; 10,000 partitions.",
        {
            "batched": "pairs/s, 8 streams, batches of 100; goal 300,000",
            "batched10": "pairs/s, 8 streams, batches of 10",
            "single": "pairs/s, one grant and one ack per message, 8 streams, 4 outstanding; goal 30,000",
            "single_1": "the same, 1 outstanding",
            "grant_p99_ms": "ms from a lease request to its grant, 99th percentile",
            "fsync_ms": "ms that this disk takes to write 4 KiB and sync them, median of 200, in the same folder",
        },
    ),
    "makespan": Bench(
        "Time over ideal",
        "The real cores of master and agents run on a virtual clock, with simulated trainers and 2,000,000 records. "
        "In each of 20 seeds, one worker, drawn at random, is killed and comes back seconds later. The ideal: each "
        "living worker trains at its own rate and never waits. The alternative plays the same seeds in the same run: "
        "workers pull shards of a fixed size. A pull costs only the time on the wire, and deaths are known at once.",
        {
            "ratio": "time over ideal at 10:10:10:1, median; goal at most 1.03",
            "ratio_max": "the same, worst seed",
            "ratio_10_1": "time over ideal with two workers at 10:1, median",
            "ratio_10_1_max": "the same, worst seed",
            "rss_growth": "anonymous resident memory after 10^9 records over that after 10^7, leases of one "
            "batch; goal at most 1.05",
            "rss_kib": "the same in KiB, by number of records",
            "rss_growth_default": "with leases of two seconds",
            "rss_kib_default": "the same in KiB",
            "planner_ns": "ns per grant and its ack in the core, 10,000 partitions, batches of 100",
            "workers_10_10_10_1": "ratio: median (range); shards handed out; records done twice",
            "workers_10_1": "the same with two workers",
            "seeds": "",
            "records": "of the input",
        },
    ),
    "decode": Bench(
        "File to numpy batches",
        "TSV and JSON lines of a label, 13 numbers and 26 categories, to numpy arrays of the same shape; the "
        "contestants take turns in one run. bench/decode/contestants.py says what each does: pyarrow reads "
        "with one thread, and numpy hashes its categories with a function that is cheaper than XXH64; pyarrow_raw "
        "leaves them unhashed. Each figure is [median, min, max] over the rounds.",
        {
            f"{form}_{name}": meaning
            for form in ("tsv", "json")
            for name, meaning in {
                "vs_pyarrow": "records/s end to end (headrace up, leases, acks, trainer) over pyarrow's; goal 2",
                "all_cpu_of_pyarrow": "CPU per record of trainer and `headrace up` together over pyarrow's one thread",
                "vs_pyarrow_raw": "records/s over pyarrow without hashing",
                "all_cpu_of_pyarrow_raw": "CPU per record over it",
                "vs_python": "records/s over per-record Python",
                "all_cpu_of_python": "CPU per record over it",
                "core_vs_pyarrow": "records per CPU second of the `up` process over pyarrow's",
                "trainer_cpu_of_pyarrow": "CPU of the trainer's process over pyarrow's; goal at most 0.05",
                "core_records_per_s": "records per CPU second of the `up` process",
                "decode_vs_pyarrow": "records per CPU second of the decoder alone over pyarrow's",
                "decode_vs_pyarrow_raw": "records per CPU second over pyarrow without hashing",
                "decode_records_per_cpu_s": "records per CPU second of the decoder alone, file to frames",
            }.items()
        },
    ),
    "kafka": Bench(
        "Kafka to numpy batches",
        "One real broker on the same machine; topics of 4 partitions, written once: 125 float32 (500 bytes), and "
        "the TSV and JSON records of the section above. `ordinary` is confluent-kafka as most people use it: default "
        "settings, consume(1000), each record decoded by itself. `tuned` is the best that we know in Python: "
        "librdkafka that never pauses, one join per batch, then np.frombuffer or pyarrow's readers. `headrace` is "
        "end to end, with leases, acks and a step per batch. bench/kafka/readers.py says what each does. Each "
        "figure is [median, min, max] over the rounds.",
        {
            f"{form}_{name}": meaning
            for form in ("floats", "tsv", "json")
            for name, meaning in {
                "vs_ordinary": "records/s over ordinary's; goal 10",
                "vs_tuned": f"records/s over tuned's; goal {2 if form == 'floats' else 2.5}",
                "trainer_cpu_of_ordinary": "CPU per record of the trainer's process over ordinary's; goal at most 0.1",
                "trainer_cpu_of_tuned": "the same over tuned's",
                "all_cpu_of_ordinary": "CPU per record of trainer and `headrace up` together over ordinary's",
                "all_cpu_of_tuned": "the same over tuned's",
                **{
                    f"{who}_{figure}": what.format(who=who)
                    for who in ("headrace", "tuned", "ordinary")
                    for figure, what in {
                        "records_per_s": "{who}: records/s",
                        "trainer_cpu_s_per_million": "CPU seconds of the trainer's process per million records",
                        "all_cpu_s_per_million": "of all its processes, the broker's not counted",
                        "cores": "cores that its processes kept busy",
                    }.items()
                },
            }.items()
        },
    ),
    "rocketmq": Bench(
        "RocketMQ to numpy batches",
        "One real broker on the same machine with its default limit of 32 messages for one answer; topics of 4 queues, "
        "written once: 125 float32 (500 bytes), and the TSV records of the sections above. There is no fast Python "
        "client of RocketMQ, so the others are its official Go client with a pipe into Python. `ordinary` is a push "
        "consumer with the library's defaults, each record decoded by itself. `tuned` takes as many messages per pull "
        "and per call as the library allows, joins them in Go, gathers some thousand in Python, and uses np.frombuffer "
        "or pyarrow's CSV reader. Their clock starts when they have got their queues. `headrace` is end to end, with "
        "leases, acks and a step per batch. bench/rocketmq/readers.py says what each does. " + LOAD,
        {**QUEUES, "wide": "the broker gives 1,024 messages in one answer"},
    ),
    "pulsar": Bench(
        "Pulsar to numpy batches",
        "One real broker on the same machine; topics of 4 partitions, written once by the official Go producer with "
        "its defaults (batches of up to 128 KiB, not compressed): 125 float32 (500 bytes), and the TSV records of the "
        "sections above. `ordinary` is pulsar-client, the official Python client, as most people use it: receive() and "
        "acknowledge() for each message, each record decoded by itself. `tuned` is batch_receive() with a receiver "
        "queue of 10,000, one cumulative acknowledgement per batch, and np.frombuffer or pyarrow's CSV reader. "
        "`headrace` is end to end, with leases, acks and a step per batch. bench/pulsar/readers.py says what each "
        "does. " + LOAD,
        QUEUES,
    ),
    "freshness": Bench(
        "Produced to batch",
        "10,000 records/s of 16 bytes into two partitions of a real broker on the same machine, by librdkafka with "
        "default settings (linger 5 ms). Age: from the producer's clock to the batch in Python, for batches of up to "
        "256 rows that wait for at most 10 ms; `headrace` is `batches(256, max_wait=0.01)` with a step per batch, "
        "`confluent` is confluent-kafka's consume(256, 0.01) and np.frombuffer. They take turns in one run. Each "
        "figure is [median, min, max] over the rounds.",
        AGES,
    ),
    **{
        f"freshness-{source}-500": Bench(
            f"Produced to batch, 500 partitions of {name}",
            f"The same with 500 partitions of {name} on one agent. They are written in turn: the records that are due "
            f"each 5 ms go to one of them. A reader is measured as soon as it gets nine tenths of the rate and no "
            f"record older than a second, or after 180 s. {rival}",
            AGES,
        )
        for source, name, rival in (
            ("kafka", "Kafka", ""),
            ("pulsar", "Pulsar", "`pulsar` is pulsar-client."),
            ("rocketmq", "RocketMQ", "There is no fast Python client of RocketMQ, so Headrace runs alone."),
        )
    },
    "parquet": Bench(
        "Parquet to numpy batches",
        "Two files of 40 columns, in row groups of 250,000 rows. `numeric`: a label, 13 columns of floats in which one "
        "value in ten is null, 26 of int64. `strings`: the same with 26 columns of texts of 8 bytes instead of int64, "
        "hashed into 2^20 buckets. The decoder alone fills the bytes of frames of 1,024 or 65,536 rows. It is compared "
        "with pyarrow's iter_batches on one thread, into numpy arrays; pyarrow's texts come as dictionaries, whose "
        "entries numpy hashes once, with a function that is cheaper than XXH64. End to end: a trainer beside `headrace "
        "up`, batches of 1,024 rows, leases, acks and a step per batch. All take turns. " + LOAD,
        {
            **{
                f"{kind}_{key}": meaning
                for kind, goals in (("numeric", (3, 2)), ("strings", (6, 2.5)))
                for key, meaning in {
                    "1024_vs_pyarrow": f"records per CPU second, batches of 1,024, over pyarrow's; goal {goals[0]}",
                    "65536_vs_pyarrow": f"records per CPU second, batches of 65,536, over pyarrow's; goal {goals[1]}",
                    "trainer_cpu_of_pyarrow": "end to end: CPU of the trainer's process over pyarrow's; "
                    "goal at most 0.25",
                    "all_cpu_of_pyarrow": "the same with the CPU of `headrace up`",
                    "1024_cpu_s_per_million": "the decoder alone, batches of 1,024: CPU seconds per million records",
                    "1024_pyarrow_cpu_s_per_million": "the same of pyarrow",
                    "65536_cpu_s_per_million": "the decoder alone, batches of 65,536: CPU seconds per million records",
                    "65536_pyarrow_cpu_s_per_million": "the same of pyarrow",
                }.items()
            },
            "load": "the machine's load before the run, of 2 cores",
        },
    ),
    "columnar": Bench(
        "tf.Example to batches",
        "TFRecord of tf.Example with 40 features: a label, 13 floats, 26 texts. Our source and decoder list the file, "
        "check both CRCs, decode, and hash into the bytes of frames of 1,024 rows. They are compared with tf.data: "
        "TFRecordDataset, batch(1024) and parse_example, which does not hash. Both take turns. " + LOAD,
        {
            "vs_tf_data": "records per CPU second over tf.data's; goal 5",
            "headrace_cpu_s_per_million": "CPU seconds per million records",
            "tf_data_cpu_s_per_million": "the same of tf.data",
            "load": "the machine's load before the run, of 2 cores",
        },
    ),
    "tf": Bench(
        "Input of an Estimator",
        "A trivial Estimator of TensorFlow 2.15 that reads 40 single float features, in batches of 1,024. `tf_data` is "
        "TFRecordDataset and parse_example; Headrace reads the same TFRecord files (`tfrecord`), or the same numbers "
        "as TSV (`tsv`). They take turns, each in a process of its own. Each figure is [median, min, max] over the "
        "runs.",
        {
            f"{kind}_{key}": meaning
            for kind in ("tsv", "tfrecord")
            for key, meaning in {
                "vs_tf_data": "records/s over tf.data's; goal 4",
                "trainer_cpu_of_tf_data": "CPU per record of the trainer's process over tf.data's; goal at most 0.2",
                "all_cpu_of_tf_data": "CPU per record of trainer and `headrace up` over tf.data's",
                "records_per_s": "",
                "trainer_us_per_record": "CPU of the trainer's process, microseconds",
            }.items()
        },
    ),
    "landing": Bench(
        "Pushed to trained",
        "Records of 200 bytes from a Python producer to a Python trainer: pushed to a landing with `headrace.Pusher`, "
        "and through a real Kafka with confluent-kafka, acks=all and a flush where landing commits. Landing fsyncs "
        "each chunk and each commit before it answers; Kafka with its default settings does not fsync. Both lie on the "
        "same disk. `fast`: transactions of 10,000 records as fast as they go. `fresh`: 5,000 records/s, a transaction "
        "each 100 ms. Both take turns. " + LOAD,
        {
            "fast_records_per_s_of_kafka": "records/s from the first push to the last batch, over Kafka's; goal 1",
            "fresh_p50_ms_of_kafka": "age of records in the trainer over that with Kafka, median; goal at most 1",
            "fresh_p99_ms_of_kafka": "the same, 99th percentile; goal at most 1",
            "fast_us_per_record_of_kafka": "CPU of producer, trainer and broker or `headrace up`, over Kafka's",
            "fresh_us_per_record_of_kafka": "the same at 5,000 records/s",
            "load": "the machine's load before the run, of 2 cores",
        },
    ),
    "rounds": Bench(
        "Rounds of a group",
        "Four ranks that train one model, with rounds and without, in turn; each run has an agent and a master of its "
        "own. A step is next(), 5 ms of sleep in place of work, a barrier between the ranks in place of the "
        "collective, and stream.step(). A rank waits in the collective because of data while it is in the barrier and "
        "another rank is in next(). With rounds the rows of all ranks have arrived by then, so what is left is the "
        "time in which the machine has not run the other rank yet. " + LOAD,
        {
            "cost": "time of a step with rounds over that without, minus 1, median of the pairs; goal at most 0.03",
            "cost_interval": "95 % confidence interval of that median; goal at most 0.03",
            "cost_range": "lowest, highest pair",
            "data_wait_in_collective": "share of their time that ranks wait in the collective because of data; it "
            "should be 0 (see above)",
            "data_wait_in_collective_none": "the same without rounds",
            "scarce_data_wait_in_collective": "the same with rounds, where rows come at half the ranks' pace",
            "scarce_in_next": "share of their time that ranks then wait in next(), where waiting harms nobody",
            "cpu_us_per_batch": "CPU of trainers, agent and master",
            "cpu_us_per_batch_none": "the same without rounds",
            "step_ms": "a step without rounds",
        },
    ),
    "flash": Bench(
        "Checkpoints in memory",
        "A trainer saves float32 arrays, 66 or 2,000 of equal size, and is killed. `floor` is a copy of the same "
        "arrays into memory that is warm, by one thread in the same process, in alternation; a save may use several "
        "threads. A save is timed from the call to its return. A checkpoint is durable when its cut is bound, after "
        "its manifest is synced; `dd` copies the same slot with oflag=direct conv=fsync, in alternation, and nothing "
        "else runs. The matrices are multiplied by numpy with as many threads as there are cores. Both restores are in "
        "a new process: one as soon as there is a Checkpointer, the other when a model of that size has been built "
        "after it. The 2,000 arrays have an odd number of bytes, so that most do not lie at a multiple of 64. `load` "
        "is the machine's load before the run. Above 0.5, other programs ran at the same time, and the figures mean "
        "little.",
        {
            **{
                f"t{count}_{name}": meaning
                for count in (66, 2000)
                for name, meaning in {
                    "floor_s": f"{count:,} arrays: one copy",
                    "torch_save_blocks_times_ours": "time that torch.save and fsync block, over ours; goal 15",
                    "dcp_async_save_blocks_times_ours": "the same of DCP's async_save; goal 8",
                    "dlrover_memory_blocks_times_ours": "the same of DLRover's save to memory, if it is installed",
                    "save_over_floor_median": "time that a save blocks, over the floor; goal at most 1.05",
                    "save_over_floor_p99": "the same, 99th percentile; goal at most 2",
                    "first_save_over_floor": "the first save, after prepare(); goal at most 1.15",
                    "save_beside_persist_over_floor": "a save while another checkpoint goes to storage, over a copy "
                    "with nothing beside",
                    "saves_left_out": "of these, saves that were not in memory afterwards; goal at most 0",
                    "durable_s": "from the return of save() to the bound checkpoint on storage",
                    "durable_over_dd": "that time over the time of `dd`; goal at most 0.5",
                    "rate_kept_while_persisting": "matrix multiplications per second while a checkpoint goes to "
                    "storage, over those with nothing beside; goal 0.95",
                    "rate_kept_while_dcp_saves": "the same while DCP's async_save goes on",
                    "map_ms": "mapping a checkpoint, ms; goal at most 1",
                    "bare_mmap_ms": "a bare mmap of the slot",
                    "restore_call_ms": "restore(), with the master's answer, when a model has been built",
                    "copy_into_model_over_warm_copy": "then the copy from the slot into the model, over a warm copy",
                    "ready_over_warm_copy": "restore() and that copy, over a warm copy; goal at most 1.3",
                    "ready_over_warm_copy_at_once": "the same without a model to build: restore() "
                    "waits for the checksum",
                }.items()
            },
            "MiB": "of all arrays",
            "load": "the machine's load before the run, of 2 cores",
        },
    ),
    "deltas": Bench(
        "Deltas of a table",
        "A table of float32, 64 wide. Whole saves and deltas alternate in one process; before each one 5 % of the "
        "rows, drawn at random, change and are touched. " + LOAD,
        {
            "whole_over_delta_bytes": "bytes on storage, whole over delta; goal at least 18",
            "whole_over_delta_took": "from save() to the bound checkpoint, whole over delta; goal at least 6",
            "whole_over_delta_blocked": "the call of save(), whole over delta",
            "MiB": "of the table",
            "load": "the machine's load before the run, of 2 cores",
        },
    ),
    "acks": Bench(
        "The cost of acking every batch",
        "Two trainers of a replicated job: one steps each batch and does nothing else; the other takes the same "
        "batches and never steps, so no ack is made, sent or written in its time. They take turns in windows of 2 s; "
        "bench/acks/bench.py says how.",
        {
            "cost": "time added by acking each batch, as a share, median of the pairs; goal at most 0.02",
            **COSTS,
        },
    ),
    "exact": Bench(
        "The cost of exact checkpoints",
        "The same in windows of 10 s. In each of its windows, the trainer that steps also saves a checkpoint (1 MiB of "
        "weights): acks, a cut, a manifest and a bind, compared with none of them.",
        {
            "cost": "time added by acks, cuts and checkpoints, as a share, median of the pairs; goal at most 0.02",
            **COSTS,
            "checkpoints": "checkpoints that were saved",
            "checkpoints_unbound_at_window_end": "those of them that were not bound when their window ended, so a part "
            "of their work may lie outside of it",
        },
    ),
}
