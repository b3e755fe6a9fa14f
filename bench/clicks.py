"""The click log's records in a spec: a label, 13 numbers and 26 hashed categories."""

from __future__ import annotations

import json


def decode(form: str, buckets: int = 1048576) -> str:
    """The `decode` of a spec, of tsv or json records."""
    dense = [f"/I{i}" for i in range(1, 14)] if form == "json" else ["1..13"]
    cat = [f"/C{i}" for i in range(1, 27)] if form == "json" else ["14..39"]
    label = "/label" if form == "json" else "0"
    return f"""decode:
  format: {form}
  columns:
  - {{name: label, path: "{label}", dtype: float32}}
  - {{name: dense, paths: {json.dumps(dense)}, dtype: float32, default: "0"}}
  - {{name: cat, paths: {json.dumps(cat)}, dtype: int64, hash: {{buckets: {buckets}, salt: ""}}}}
"""
