"""Spark over the journal: a source, tables, and jobs that are pure functions of DataFrames.

positions.py   how far a reader has come, and what lies between two positions
source.py      spark.read / spark.readStream .format("homing")
session.py     a Spark session that knows the source
tables.py      where tables are, and which of their batches count
requests.py …  one transformation a file: DataFrame in, DataFrame out
jobs.py        the runners behind `homing pipeline JOB`
"""
