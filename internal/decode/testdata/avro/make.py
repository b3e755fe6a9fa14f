"""Makes records.json: random Avro schemas, records that fastavro wrote, and what fastavro reads there.

    python make.py SEED > records.json       (needs fastavro)

Each case has the writer's schema, columns as a spec writes them, the records as hex, and the
values of every column: null is a missing value.
"""

import datetime
import decimal
import io
import json
import random
import sys
import uuid

import fastavro

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
NAMES = iter(range(10**6))


def make_type(r, depth):
    simple = ["boolean", "int", "long", "float", "double", "bytes", "string", "enum", "fixed", "decimal", "fixed_decimal",
              "uuid", "date", "time_millis", "timestamp_millis", "timestamp_micros"]
    kind = r.choice(simple + (["record", "array", "map", "nullable", "nullable", "union"] if depth > 0 else []))
    name = f"N{next(NAMES)}"
    if kind == "record":
        return {"type": "record", "name": name, "fields": [{"name": f"f{i}", "type": make_type(r, depth - 1)} for i in range(r.randrange(1, 4))]}
    if kind == "array":
        return {"type": "array", "items": make_type(r, depth - 1)}
    if kind == "map":
        return {"type": "map", "values": make_type(r, depth - 1)}
    if kind == "nullable":
        inner = make_type(r, 0) if r.random() < 0.6 else make_record(r, depth - 1)
        return r.choice([["null", inner], [inner, "null"]])
    if kind == "union":
        return ["null", "boolean", "long", make_record(r, depth - 1)]
    return {
        "enum": {"type": "enum", "name": name, "symbols": ["RED", "GREEN", "BLUE"]},
        "fixed": {"type": "fixed", "name": name, "size": r.randrange(1, 9)},
        "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
        "fixed_decimal": {"type": "fixed", "name": name, "size": 7, "logicalType": "decimal", "precision": 12, "scale": 2},
        "uuid": {"type": "string", "logicalType": "uuid"},
        "date": {"type": "int", "logicalType": "date"},
        "time_millis": {"type": "int", "logicalType": "time-millis"},
        "timestamp_millis": {"type": "long", "logicalType": "timestamp-millis"},
        "timestamp_micros": {"type": "long", "logicalType": "timestamp-micros"},
    }.get(kind, kind)


def make_record(r, depth):
    return {"type": "record", "name": f"N{next(NAMES)}", "fields": [{"name": f"f{i}", "type": make_type(r, max(depth, 0))} for i in range(r.randrange(1, 4))]}


def make_value(r, t):
    if isinstance(t, list):
        return make_value(r, r.choice(t))
    if isinstance(t, str):
        t = {"type": t}
    kind, logical = t["type"], t.get("logicalType")
    if logical == "decimal":
        return decimal.Decimal(r.choice([0, 1, -1, r.randrange(-10**12 + 1, 10**12)])).scaleb(-t["scale"])
    if logical == "uuid":
        return uuid.UUID(int=r.getrandbits(128))
    if logical == "date":
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=r.randrange(-10**5, 10**5))
    if logical == "time-millis":
        return (datetime.datetime(2000, 1, 1) + datetime.timedelta(milliseconds=r.randrange(86400000))).time()
    if logical in ("timestamp-millis", "timestamp-micros"):
        return EPOCH + datetime.timedelta(milliseconds=r.randrange(-10**11, 10**12))
    return {
        "null": lambda: None,
        "boolean": lambda: r.random() < 0.5,
        "int": lambda: r.choice([0, 1, -1, 2**31 - 1, -2**31, r.randrange(-1000, 1000)]),
        "long": lambda: r.choice([0, -1, 2**63 - 1, -2**63, r.randrange(-10**6, 10**6)]),
        "float": lambda: float(r.randrange(-10**6, 10**6)) / 64,
        "double": lambda: r.uniform(-1e9, 1e9),
        "bytes": lambda: bytes(r.randrange(256) for _ in range(r.randrange(5))),
        "string": lambda: "".join(r.choice("ab€😀 ") for _ in range(r.choice([0, 3, 40]))),
        "enum": lambda: r.choice(t["symbols"]),
        "fixed": lambda: bytes(r.randrange(256) for _ in range(t["size"])),
        "array": lambda: [make_value(r, t["items"]) for _ in range(r.randrange(4))],
        "map": lambda: {k: make_value(r, t["values"]) for k in r.sample("xyz", r.randrange(4))},
        "record": lambda: {f["name"]: make_value(r, f["type"]) for f in t["fields"]},
    }[kind]()


def leaves(t, path, stars, out):
    """Paths that lead to a value with one dtype."""
    if isinstance(t, list):
        for b in t:
            if isinstance(b, dict) and b["type"] == "record":
                leaves(b, path, stars, out)
        others = [b for b in t if b != "null" and not (isinstance(b, dict) and b["type"] == "record")]
        if len(t) == 2 and len(others) == 1:
            leaves(others[0], path, stars, out)
        return
    if isinstance(t, str):
        t = {"type": t}
    kind, logical = t["type"], t.get("logicalType")
    if kind == "record":
        for f in t["fields"]:
            leaves(f["type"], path + [f["name"]], stars, out)
    elif kind == "array":
        leaves(t["items"], path + ["*"], stars + 1, out)
        if stars == 0:
            leaves(t["items"], path + ["1"], stars, out)
    elif kind == "map":
        leaves(t["values"], path + ["y"], stars, out)
    elif logical == "decimal":
        out.append((path, "float64", stars))
    else:
        dtype = {"boolean": "bool", "int": "int32", "long": "int64", "float": "float32", "double": "float64",
                 "bytes": "bytes", "string": "string", "enum": "string", "fixed": "bytes"}[kind]
        out.append((path, dtype, stars))


def look(value, path):
    """The value at a path; with a * the list of them, None for an element without one."""
    for i, token in enumerate(path):
        if value is None:
            return [] if "*" in path[i:] else None
        if token == "*":
            if not isinstance(value, list):
                return []
            out = []
            for v in value:
                found = look(v, path[i + 1:])
                out += found if "*" in path[i + 1:] else [found]
            return out
        if isinstance(value, list):
            value = value[int(token)] if token.isdigit() and int(token) < len(value) else None
        elif isinstance(value, dict):
            value = value.get(token)
        else:
            value = None
    return value


def plain(v):
    if isinstance(v, list):
        return [plain(x) for x in v]
    if isinstance(v, decimal.Decimal):
        return float(v)
    if isinstance(v, datetime.datetime):
        return v
    if isinstance(v, datetime.date):
        return (v - datetime.date(1970, 1, 1)).days
    if isinstance(v, datetime.time):
        return ((v.hour * 60 + v.minute) * 60 + v.second) * 1000 + v.microsecond // 1000
    if isinstance(v, uuid.UUID):
        return str(v)
    if isinstance(v, bytes):
        return "hex:" + v.hex()
    return v


def instants(v, unit):
    if isinstance(v, list):
        return [instants(x, unit) for x in v]
    if isinstance(v, datetime.datetime):
        return (v - EPOCH) // datetime.timedelta(**{unit: 1})
    return v


def unit_at(t, path):
    """milliseconds or microseconds of a timestamp."""
    return "microseconds" if "timestamp-micros" in json.dumps(narrow(t, path)) else "milliseconds"


def narrow(t, path):
    for token in path:
        options = t if isinstance(t, list) else [t]
        for b in options:
            if not isinstance(b, dict):
                continue
            if b["type"] == "record" and any(f["name"] == token for f in b["fields"]):
                t = next(f["type"] for f in b["fields"] if f["name"] == token)
                break
            if b["type"] == "array":
                t = b["items"]
                break
            if b["type"] == "map":
                t = b["values"]
                break
    return t


def main():
    r = random.Random(int(sys.argv[1]))
    cases = []
    while len(cases) < 60:
        schema = make_record(r, 3)
        found = []
        leaves(schema, [], 0, found)
        if not found:
            continue
        wanted = r.sample(found, min(len(found), 5))
        parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
        records, values = [], []
        for _ in range(6):
            out = io.BytesIO()
            fastavro.schemaless_writer(out, parsed, make_value(r, schema))
            records.append(out.getvalue().hex())
            values.append(fastavro.schemaless_reader(io.BytesIO(out.getvalue()), parsed, None))
        columns, rows = [], []
        for i, (path, dtype, stars) in enumerate(wanted):
            c = {"name": f"c{i}", "path": "/" + "/".join(path), "dtype": dtype}
            blank = {"bool": "false", "string": "none", "bytes": "none"}.get(dtype, "-7")
            c["default" if stars else "missing"] = blank if stars else "mask"
            columns.append(c)
            got = [instants(plain(look(v, path)), unit_at(schema, path)) for v in values]
            filler = {"bool": False, "string": "none", "bytes": "hex:" + b"none".hex()}.get(dtype, -7)
            if stars:
                got = [[filler if x is None else x for x in row] or [filler] for row in got]
            rows.append(got)
        cases.append({"schema": schema, "columns": columns, "records": records, "values": rows})
    print("[" + ",\n".join(json.dumps(c, ensure_ascii=True, separators=(",", ":")) for c in cases) + "]")


main()
