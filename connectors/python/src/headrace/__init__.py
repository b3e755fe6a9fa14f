"""Records to trainers: leased shards, exact batches, every record accounted for."""

__version__ = "0.1.0"
