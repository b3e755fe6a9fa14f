"""Wrote floats.parquet: columns of floats whose values are whole numbers, and uint64 above int64."""

import decimal
import sys

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = range(40)
whole = [float(i) for i in ROWS]
pq.write_table(
    pa.table(
        {
            "double": pa.array(whole, pa.float64()),
            "large": pa.array([1e8 + i for i in ROWS], pa.float64()),
            "single": pa.array(whole, pa.float32()),
            "half": pa.array(whole, pa.float16()),
            "holes": pa.array([None if i % 6 == 0 else float(i) for i in ROWS], pa.float64()),
            "decimal": pa.array([decimal.Decimal(i) for i in ROWS], pa.decimal128(9, 0)),
            "cents": pa.array([decimal.Decimal(i).scaleb(-2) * 100 for i in ROWS], pa.decimal128(9, 2)),
            "list": pa.array([[float(i)] * (i % 3) for i in ROWS], pa.list_(pa.float64())),
            "in": pa.array([{"x": float(i)} for i in ROWS], pa.struct([("x", pa.float64())])),
            "user_id": pa.array([float(i % 7) for i in ROWS], pa.float64()),
            "hash": pa.array([2**63 + i * 7919 for i in ROWS], pa.uint64()),
            "count": pa.array(ROWS, pa.uint64()),
            "label": pa.array([float(i % 2) for i in ROWS], pa.float64()),
        }
    ),
    sys.argv[1],
    compression="zstd",
)
