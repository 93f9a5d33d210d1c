"""Spark over the journal: a source, a sink, tables, and jobs that are pure functions of DataFrames.

session.py               a Spark session that knows the source
source.py asked.py reading.py remote.py   spark.read / spark.readStream .format("homing"), here and over HTTP
sink.py                  df.write / df.writeStream .format("homing")
tables.py ingest.py      where tables are, which of their batches count, and how they come about
pieces.py folding.py projecting.py files.py   what tasks of ingest write without Spark
requests.py publications.py intervals.py   one transformation a file: DataFrame in, DataFrame out
parsing.py daemon.py      many attributes and fields at once; what tasks have imported when they start
ledger.py slo.py match.py plan.py replay.py compact.py report.py   the jobs
live.py overlay.py register.py standin.py handing.py   Spark in the matchers' place
"""
