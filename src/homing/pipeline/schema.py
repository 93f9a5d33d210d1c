"""The events' columns as Spark sees them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from homing.errors import PipelineError
from homing.journal.columns import SCHEMA

EVENTS: StructType = StructType(
    [StructField(field.name, field.dataType) for field in from_arrow_schema(SCHEMA)]
)

# homing.journal.positions.Range
RANGES = pa.schema(
    [
        ("journal", pa.string()),
        ("path", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
    ]
)


def arrow_part(schema: StructType) -> pa.Schema:
    """The Arrow columns for a schema that the user gave; PipelineError where one has no source."""
    wrong = [
        f"{field.name} {field.dataType.simpleString()}"
        for field in schema
        if field.name not in EVENTS.names or EVENTS[field.name].dataType != field.dataType
    ]
    if wrong:
        columns = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in EVENTS)
        raise PipelineError(f"no such columns: {', '.join(wrong)}", hint=f"there are {columns}")
    return pa.schema([SCHEMA.field(field.name) for field in schema])
