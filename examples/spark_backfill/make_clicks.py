"""Writes Parquet files of invented clicks: spark-submit make_clicks.py FOLDER FIRST ROWS

Each run adds one part to FOLDER, with the ids from FIRST to FIRST + ROWS - 1. The part appears as a whole."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

folder, first, rows = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
spark = SparkSession.builder.getOrCreate()
ids = spark.range(first, first + rows, 1, 2)
clicks = ids.select(
    "id", (F.col("id") * 7919 % 1000).alias("user"), (F.col("id") * 104729 % 50).alias("ad")
).withColumn("clicked", ((F.col("ad") % 5 == 0) & (F.col("user") % 3 == 0)).cast("float"))
new = folder.parent / f".{folder.name}-{first}"
clicks.write.mode("overwrite").parquet(str(new))
folder.mkdir(exist_ok=True)
for n, part in enumerate(sorted(new.glob("part-*.parquet"))):
    part.rename(folder / f"{first}-{n}.parquet")
