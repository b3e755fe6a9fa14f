"""Writes Parquet files into a landing, then each new file: spark-submit --jars JAR backfill.py FOLDER CHECKPOINT

The first epochs of the query are the files that are in FOLDER; later ones are new files. The
checkpoint knows which files have landed, so the program may be killed and started again."""

import sys

from pyspark.sql import SparkSession

folder, checkpoint = sys.argv[1], sys.argv[2]
spark = SparkSession.builder.getOrCreate()
schema = spark.read.parquet(folder).schema
clicks = spark.readStream.schema(schema).option("maxFilesPerTrigger", 4).parquet(folder)
query = (
    clicks.writeStream.format("headrace")
    .option("dataset", "clicks")
    .option("checkpointLocation", checkpoint)
    .trigger(processingTime="1 second")
    .start()
)
query.awaitTermination()
