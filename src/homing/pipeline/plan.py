"""Job `plan`: a placement plan for the matchers, from what is really subscribed and published.

The planner (homing.push.planner) works on samples in the driver; every subscription and
publication is then laid onto the plan by the executors, and the balance that comes out is shown
beside the one foretold. Matchers load the file (`homing.push.placement`) and move to it live.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from homing.errors import PipelineError
from homing.ids import NODE_ID_BYTES, parse_node_id
from homing.pipeline.parsing import attributes_of, fields_of
from homing.pipeline.tables import Tables
from homing.push.placement import Plan, dump_plan, load_plan
from homing.push.planner import Forecast, TileLoad, make_plan, spread
from homing.push.subscription import Attributes

# What the planner sees of each: its forecast then errs by about a percent, in seconds of work.
SAMPLE = 20_000
SEED = 7

TILES = "tree int, tile int"
_TILES = pa.schema([("tree", pa.int32()), ("tile", pa.int32())])
Batches = Iterable[pa.RecordBatch]


class Balance(NamedTuple):
    """What a plan does with everything there is."""

    copies: float
    max_over_mean: float
    tiles: int
    subscriptions: int
    publications: int


def sample(frame: DataFrame, size: int = SAMPLE) -> DataFrame:
    """About so many rows, the same ones every time."""
    total = frame.count()
    return frame if total <= size else frame.sample(fraction=min(1.0, size / total), seed=SEED)


def make(
    epoch: int, matchers: Sequence[str], publications: DataFrame, subscriptions: DataFrame
) -> tuple[Plan, Forecast]:
    """A plan from samples of the two tables."""
    if not matchers:
        raise PipelineError(
            "a plan needs the matchers' ids", hint="--matchers, or ingest a journal"
        )
    texts = [row.fields for row in sample(subscriptions.select("fields")).collect()]
    fields = [each for text in texts if (each := fields_of(text)) is not None]
    rows = sample(publications.select("attrs_json")).collect()
    events = [said for row in rows if (said := attributes_of(row.attrs_json)) is not None]
    return make_plan(epoch, matchers, fields, events)


def held(subscriptions: DataFrame, plan: Plan) -> DataFrame:
    """One row for each subscription and tile that it overlaps."""
    return subscriptions.select("fields").mapInArrow(_laying(plan, "fields"), TILES)


def asked(publications: DataFrame, plan: Plan) -> DataFrame:
    """One row for each publication and tree: the tile that it lies in."""
    return publications.select("attrs_json").mapInArrow(_laying(plan, "attrs_json"), TILES)


def tiles(publications: DataFrame, subscriptions: DataFrame, plan: Plan) -> DataFrame:
    """Every tile with the subscriptions it holds and the publications it is asked."""
    both = held(subscriptions, plan).withColumn("held", F.lit(1)).withColumn("asked", F.lit(0))
    other = asked(publications, plan).withColumn("held", F.lit(0)).withColumn("asked", F.lit(1))
    found = both.unionByName(other).groupBy("tree", "tile")
    return found.agg(F.sum("held").alias("subscriptions"), F.sum("asked").alias("publications"))


def balance(
    plan: Plan, matchers: Sequence[str], found: DataFrame, subscriptions: int, publications: int
) -> Balance:
    """How even the plan is on everything, by the planner's own measure."""
    counts = {
        (row.tree, row.tile): (row.subscriptions, row.publications) for row in found.collect()
    }
    owners = [plan.trees[tree].owners[tile] or tuple(matchers) for tree, tile in plan.tiles]
    loads = [TileLoad(*counts.get(tile, (0, 0))) for tile in plan.tiles]
    busy = spread(owners, loads)
    mean = sum(busy.values()) / max(1, len(busy))
    copies = sum(load.subscriptions * len(own) for load, own in zip(loads, owners, strict=True))
    return Balance(
        copies / max(1, subscriptions),
        max(busy.values(), default=0.0) / mean if mean else 1.0,
        len(plan.tiles),
        subscriptions,
        publications,
    )


def names(text: str) -> list[str]:
    """Matchers' ids as they are given; a number stands for so many that are not there yet."""
    if text.isdigit() and len(text) < 2 * NODE_ID_BYTES:
        return [f"{number:016x}" for number in range(1, int(text) + 1)]
    return [parse_node_id(each.strip()).hex() for each in text.split(",")]


def matchers_of(tables: Tables) -> list[str]:
    """The matchers whose journals were ingested; that they started may be too long ago to be kept."""
    started = F.when(F.col("kind") == "NodeStarted", F.get_json_object("extra", "$.role"))
    theirs = tables.read("events").where(F.coalesce("role", started) == "matcher")
    return sorted(row.node for row in theirs.select("node").distinct().collect())


def _laying(plan: Plan, column: str) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    source = dump_plan(plan)

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        laid = load_plan(source)
        lay = _tiles_of_fields if column == "fields" else _tiles_of_attributes
        for batch in batches:
            found = [tile for text in batch.column(column).to_pylist() for tile in lay(laid, text)]
            trees, numbers = [tree for tree, _ in found], [tile for _, tile in found]
            columns = [pa.array(trees, pa.int32()), pa.array(numbers, pa.int32())]
            yield pa.RecordBatch.from_arrays(columns, schema=_TILES)

    return run


def _tiles_of_fields(plan: Plan, text: str | None) -> list[tuple[int, int]]:
    fields = fields_of(text)
    if fields is None:
        return []
    tree, numbers = plan.tiles_for(fields)
    return [(tree, number) for number in numbers]


def _tiles_of_attributes(plan: Plan, text: str | None) -> list[tuple[int, int]]:
    attributes: Attributes | None = attributes_of(text)
    return [] if attributes is None else plan.asked(attributes)


def told(forecast: Forecast, measured: Balance) -> Mapping[str, tuple[float, float]]:
    """Foretold and measured, by what."""
    return {
        "copies of a subscription": (forecast.copies, measured.copies),
        "busiest matcher / mean": (forecast.max_over_mean, measured.max_over_mean),
    }
