"""Job `ledger`: is every request and every publication accounted for?

A request owes exactly one end. A publication owes a match, and each client it was matched to
owes exactly one first delivery, a place in a durable queue, or a recorded drop; what a client has
acknowledged it has. Whatever breaks this is one row of the audit:

    lost        accepted or matched, and nothing came of it within `grace`
    duplicate   two ends, or two first deliveries
    orphaned    an end, a delivery or an acknowledgement of something nobody accepted
    late        delivered later than `late` after its acceptance
    unrecorded  a node left events out (its disk was full): it says so itself in a Gap, or it
                answered requests whose acceptance it could not write

Grace is counted on the clock of the node that owes the record, by the last event of that journal, so that
neither a clock that is off or was set back nor a journal that is still being read makes a loss. A connector that
says nothing any more is given `skew` on top, counted on the others.

Records are cut: by retention of journals before anybody ingested them, and by that of tables. What began before
a journal's first event that is kept is not judged, nor what was matched, or came without its match, within
`skew` of a beginning that is cut.
"""

from __future__ import annotations

from collections import Counter
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from homing.pipeline.tables import Moment, Tables

# Violations named one by one; the rest is counted.
NAMED = 50
# What people are told instead of a step's name in the table.
_CALLED = {"deliveryqueued": "queued"}
_ACCOUNTED = ("delivered", "redelivered", "acknowledged", "dropped", "deliveryqueued")


class Terms(NamedTuple):
    """What is allowed, in seconds."""

    grace: float = 60.0
    late: float = 60.0
    skew: float = 600.0


DEFAULT_TERMS = Terms()


class Audit(NamedTuple):
    """The ledger's findings: what there was, how many violations, and the first of them."""

    totals: dict[str, int]
    problems: dict[str, int]
    named: list[Row]


def run(tables: Tables, terms: Terms = DEFAULT_TERMS) -> Audit:
    """Audit everything that was ingested, as of one moment: `ingest` may go on meanwhile."""
    tables = Moment(tables)
    found = violations(tables, terms)
    read = {name: tables.read(name) for name in ("requests", "publications", "matches")}
    steps = tables.read("deliveries")
    kinds = [frame.select(F.lit(name).alias("step")) for name, frame in read.items()]
    counted = reduce(DataFrame.unionByName, [*kinds, steps.select("step")]).groupBy("step").count()
    totals = dict.fromkeys(read, 0) | {
        _CALLED.get(row.step, row.step): row["count"] for row in counted.collect()
    }
    named = found.orderBy("at", "key").limit(NAMED + 1).collect()
    problems = Counter(row.problem for row in named)
    if len(named) > NAMED:  # only then is a second pass needed to count them
        rows = found.groupBy("problem").count().collect()
        problems = Counter({row.problem: row["count"] for row in rows})
    return Audit(totals, dict(problems), named[:NAMED])


def violations(tables: Tables, terms: Terms = DEFAULT_TERMS) -> DataFrame:
    """One row for every violation in what was ingested."""
    now = Moment(tables)
    names = ("events", "requests", "publications", "matched", "matches", "deliveries")
    events, requests, publications, matched, matches, deliveries = map(now.read, names)
    return audit(events, requests, publications, matched, matches, deliveries, terms)


def audit(
    events: DataFrame,
    requests: DataFrame,
    publications: DataFrame,
    matched: DataFrame,
    matches: DataFrame,
    deliveries: DataFrame,
    terms: Terms = DEFAULT_TERMS,
) -> DataFrame:
    """Tables in, one row for every violation out; none if all is well."""
    known = journals(events)
    return (
        audit_requests(requests, known, terms)
        .unionByName(audit_publications(publications, matched, known, terms))
        .unionByName(audit_deliveries(publications, matches, deliveries, known, terms))
        .unionByName(_unrecorded(events))
    )


def journals(events: DataFrame) -> DataFrame:
    """Of each journal its present, the latest time in it, the first number that is kept and when that was.

    The present is the time of what was recorded last, by number: a clock that was ahead and was set back has been later.
    """
    return events.groupBy("node", "role").agg(
        F.max("number").alias("number"),
        F.max_by("at", "number").alias("present"),
        F.max("at").alias("latest"),
        F.min("number").alias("first"),
        F.min("at").alias("since"),
    )


def _kept_by(journals: DataFrame, *roles: str) -> DataFrame:
    """The same of each node, by its journals of some roles: those of a cluster's node share its id.

    Events that were ingested before they said their role may be of any.
    """
    ours = journals.where(F.col("role").isNull() | F.col("role").isin(*roles))
    return ours.groupBy("node").agg(
        F.max_by("present", "number").alias("present"),
        F.max("latest").alias("latest"),
        F.min("first").alias("first"),
    )


def _whole_fabric(journals: DataFrame) -> DataFrame:
    """One row: the present of whoever is ahead, and when the last push journal begins of which something is cut."""
    pushing = ~F.coalesce("role", F.lit("")).isin("broker", "dispatcher")
    cut = F.max(F.when(pushing & (F.col("first") > 1), F.col("since")))
    return journals.agg(F.max("present").alias("now"), cut.alias("cut"))


def audit_requests(requests: DataFrame, journals: DataFrame, terms: Terms) -> DataFrame:
    """The service plane."""
    each = (
        requests.where("request is not null")
        .groupBy("node", "request")
        .agg(
            F.sum("ends").alias("ends"),
            F.min("accepted_at").alias("accepted_at"),
            F.max("ended_at").alias("ended_at"),
            F.max("service").alias("service"),
            F.max("client").alias("client"),
            F.max("outcome").alias("outcome"),
        )
        .join(F.broadcast(_kept_by(journals, "broker")), "node", "left")
    )
    accepted = F.col("accepted_at").isNotNull()
    known = accepted | (F.col("request") >= F.col("first"))
    problem = (
        F.when(known & ~accepted, "orphaned")
        .when(F.col("ends") > 1, "duplicate")
        .when(known & (F.col("ends") == 0) & (F.col("outcome") == "forgotten"), "lost")
        .when((F.col("ends") == 0) & _waited("accepted_at", _own_present(), terms), "lost")
    )
    key = F.col("request").cast("string")
    return _rows(each, problem, "service", key, "accepted_at", "ended_at", _told(accepted))


def _told(accepted: Column) -> Column:
    """What is known of a request; a service's name is in its acceptance, and a name or a code may be empty."""
    nameless = F.when(accepted, "service without a name").otherwise(
        "service unknown, no acceptance is recorded"
    )
    service = F.coalesce(F.concat(F.lit("service "), "service"), nameless)
    outcome = F.coalesce(F.concat(F.lit("outcome "), "outcome"), F.lit("refused without a code"))
    return F.concat_ws(", ", service, outcome, F.concat(F.lit("ends "), "ends"))


def audit_publications(
    publications: DataFrame, matched: DataFrame, journals: DataFrame, terms: Terms
) -> DataFrame:
    """Every publication that was accepted was matched."""
    known = matched.select("id").distinct().withColumn("matched", F.lit(True))
    each = (
        publications.join(known, "id", "left")
        .join(F.broadcast(_kept_by(journals, "matcher")), "node", "left")
        .withColumn("client", F.col("publisher"))
    )
    waited = _waited("accepted_at", _own_present(), terms)
    problem = F.when(F.col("matched").isNull() & waited, "lost")
    return _rows(
        each, problem, "push", F.col("id"), "accepted_at", "accepted_at", F.lit("never matched")
    )


def audit_deliveries(
    publications: DataFrame,
    matches: DataFrame,
    deliveries: DataFrame,
    journals: DataFrame,
    terms: Terms,
) -> DataFrame:
    """Every client of every publication, once."""
    accepted = publications.groupBy("id").agg(F.min("accepted_at").alias("accepted_at"))
    theirs = _kept_by(journals, "connector").select(F.col("node").alias("connector"), "present")
    each = (
        _steps(matches, deliveries)
        .groupBy("id", "client")
        .agg(
            F.max("node").alias("node"),
            F.min("at").alias("at"),
            # Matched again after its client had moved: the connector that was told last owes the record.
            F.max(F.when(F.col("step") == "matched", F.struct("at", "connector"))).alias("last"),
            F.min(F.when(F.col("step") == "delivered", F.col("at"))).alias("delivered_at"),
            F.count(F.when(F.col("step") == "delivered", 1)).alias("first_deliveries"),
            F.count(F.when(F.col("step").isin(*_ACCOUNTED), 1)).alias("accounted"),
            F.count(F.when(F.col("step") == "deliveryqueued", 1)).alias("queued"),
        )
        .withColumns({"matched_at": F.col("last.at"), "connector": F.col("last.connector")})
        .join(accepted, "id", "left")
        .join(F.broadcast(theirs), "connector", "left")
        .crossJoin(F.broadcast(_whole_fabric(journals)))
    )
    lag = F.unix_micros("delivered_at") - F.unix_micros("accepted_at")
    silence = F.unix_micros("now") - F.unix_micros("matched_at")
    silent = silence > int((terms.grace + terms.skew) * 1e6)
    lost = (F.col("accounted") == 0) & (_waited("matched_at", F.col("present"), terms) | silent)
    # Whether it was queued is in the record too, unless that was cut.
    late = (F.col("queued") == 0) & (lag > int(terms.late * 1e6))
    known = _of_the_record("matched_at", terms)
    problem = (
        F.when(F.col("matched_at").isNull() & _of_the_record("delivered_at", terms), "orphaned")
        .when(F.col("first_deliveries") > 1, "duplicate")
        .when(known & lost, "lost")
        .when(known & late, "late")
    )
    told = F.concat_ws(  # without a lag where nothing was delivered, or no acceptance is known
        ", ",
        F.concat(F.lit("deliveries "), "first_deliveries"),
        F.concat(F.lit("lag_ms "), (lag / 1000).cast("bigint")),
    )
    return _rows(each, problem, "push", F.col("id"), "matched_at", "at", told)


def _steps(matches: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Everything that happened to a publication and a client, one row each."""
    found = matches.withColumn("step", F.lit("matched")).withColumn("at", F.col("matched_at"))
    done = deliveries.withColumn("connector", F.col("node"))
    columns = ("id", "client", "step", "node", "connector", "at")
    return found.select(*columns).unionByName(done.select(*columns))


def _unrecorded(events: DataFrame) -> DataFrame:
    nobody = F.lit(None).cast("string")
    gaps = events.where("kind = 'Gap'").select("node", "number", "at", "count")
    answers = (
        events.where("kind = 'RequestAnswered' and request is null")
        .groupBy("node")
        .agg(F.min("number").alias("number"), F.min("at").alias("at"), F.count("*").alias("count"))
    )
    each = gaps.unionByName(answers).withColumn("client", nobody)
    told = F.concat_ws(" ", "count", F.lit("events left out"))
    key = F.col("number").cast("string")
    return _rows(each, F.lit("unrecorded"), "node", key, "at", "at", told)


def _waited(column: str, present: Column, terms: Terms) -> Column:
    """Grace is over on the clock of the node that would have recorded the rest."""
    waited = F.unix_micros(present) - F.unix_micros(column) > int(terms.grace * 1e6)
    return F.coalesce(waited, F.lit(False))


def _own_present() -> Column:
    """Of a node that accepted something itself: where that is later than its present its clock was set back since."""
    return F.when(F.col("accepted_at") <= F.col("present"), F.col("present")).otherwise(
        F.col("latest")
    )


def _of_the_record(column: str, terms: Terms) -> Column:
    """Whether this came so late after the beginning of a record that is cut that all of it should be there."""
    after = F.unix_micros(column) - F.unix_micros("cut") > int(terms.skew * 1e6)
    return F.col("cut").isNull() | F.coalesce(after, F.lit(False))


def _rows(
    each: DataFrame, problem: Column, plane: str, key: Column, first: str, other: str, told: Column
) -> DataFrame:
    found = each.select(
        problem.alias("problem"),
        F.lit(plane).alias("plane"),
        "node",
        key.alias("key"),
        "client",
        F.coalesce(F.col(first), F.col(other)).alias("at"),
        told.alias("detail"),
    )
    return found.where("problem is not null")
