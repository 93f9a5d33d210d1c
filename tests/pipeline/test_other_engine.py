"""Tables and audits are what another engine makes of the same events: DuckDB, in its own words.

Journals are random: events out of order, equal times, ends that come twice or for nothing, nodes that
begin anew, names that are no text, clients in no session, payloads of any bytes.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from homing.journal import events as E
from homing.journal.columns import batch
from homing.journal.events import Event
from homing.journal.sealing import seal_all
from homing.pipeline import compact, ingest, ledger, replay, slo
from homing.pipeline.projecting import PROJECTIONS, project
from homing.pipeline.schema import EVENTS
from homing.pipeline.tables import TABLES as TABLES_OF_SPARK
from homing.pipeline.tables import Tables
from homing.testing import seeds
from tests.pipeline.conftest import SKEW, WriteJournal, run_through

BROKER, MATCHER, CONNECTORS = b"broker01", b"matcher1", (b"connect1", b"connect2")
CLIENTS = [bytes([65 + i]) * 12 for i in range(5)]
NAMES = [b"echo", "größe".encode(), b"\xff\x00", b"", "日本".encode()]
DAY = 86_400.0
Story = dict[bytes, list[Event]]

REQUESTS = """
with told as (
  select *, if(kind = 'RequestAccepted', number, request) as r from events
  where kind in ('RequestAccepted', 'RequestReposted', 'RequestAnswered', 'RequestRefused', 'RequestRequeued')),
restarts as (select t.node, t.r, min(s.number) as n, arg_min(s."at", s.number) as t from told t
             join events s on s.node = t.node and s.kind = 'NodeStarted' and s.number > t.r group by all),
ends as (select * from told where kind in ('RequestAnswered', 'RequestRefused') and r is not null),
first_end as (select distinct on (node, r) * from ends order by node, r, "at", number),
each as (select node, r, count(*) filter (kind = 'RequestReposted') as reposts,
                count(*) filter (kind = 'RequestRequeued') as requeues,
                count(*) filter (kind in ('RequestAnswered', 'RequestRefused')) as ends
         from told where r is not null group by all)
select e.node, e.r as request, a.service, a.client, a.peer as origin, a.name as message,
  a."at" as accepted_at, coalesce(f."at", if(e.ends = 0, s.t, null)) as ended_at,
  case when f.kind = 'RequestAnswered' then 'answered' when e.ends > 0 then f.code
       when s.n is not null then 'forgotten' else 'open' end as outcome,
  epoch_us(f."at") - epoch_us(a."at") as latency_us, f.took_us as waited_us, f.worker, f.peer as served_by,
  1 + (e.reposts > 0)::int as hops, coalesce(f.attempts, e.requeues + 1) as attempts,
  a.size as request_bytes, if(f.kind = 'RequestAnswered', f.size, null) as answer_bytes, e.ends,
  e.ends = 0 and s.n is null as open
from each e left join first_end f on f.node = e.node and f.r = e.r
left join told a on a.kind = 'RequestAccepted' and a.node = e.node and a.r = e.r
left join restarts s on s.node = e.node and s.r = e.r
union all
select node, null, service, client, peer, null, null, "at", code, null, null, null, null, 1, 0, size, null, 1, false
from told where kind = 'RequestRefused' and r is null
"""
# A request of several ends may be a row in each of two batches: what an audit sees is their sum.
SUMMED = """
select node, request, sum(ends)::bigint as ends, min(accepted_at) as accepted_at, max(service) as service,
  max(client) as client, bool_or(open) as open, count(*) filter (request is null) as refused
from {} group by node, request
"""
PUBLICATIONS = """
select id, node, number, "at" as accepted_at, publisher, attrs_json, payload, size,
  list_sort(map_keys(attrs)) as names from events where kind = 'PublicationAccepted'
"""
MATCHES = """
select id, client, connector, node, matched_at, took_us from (
  select id, unnest(clients) as client, unnest(connectors) as connector, node, "at" as matched_at, took_us
  from events where kind in ('PublicationMatched', 'PublicationTaken'))
"""
MATCHED = """
select id, node, "at" as matched_at, len(clients) as clients, count as subscriptions
from events where kind in ('PublicationMatched', 'PublicationTaken')
"""
DELIVERIES = """
select id, unnest(clients) as client, lower(kind) as step, node, number, "at", code as reason from events
where kind in ('Delivered', 'Redelivered', 'Acknowledged', 'Dropped', 'DeliveryQueued')
"""
# What ends a subscription is the first later one of its name, wherever, or its removal, or that of all, where it was set.
SUBSCRIPTIONS = """
with told as (select *, max("at") over (partition by client, node order by number) as clock from events
  where kind in ('SubscriptionSet', 'SubscriptionRemoved') and node = connector),
ends as (select s.node, s.number, min_by(o."at", (o.clock, o.node, o.number)) as t from told s join told o
  on o.client = s.client and (o.clock, o.node, o.number) > (s.clock, s.node, s.number)
  and if(o.kind = 'SubscriptionSet', o.name is not distinct from s.name,
    o.node = s.node and (o.name is null or o.name = s.name)) group by all)
select s.client, s.connector, s.name, s.fields, s."at" as valid_from,
  if(e.t is null, null, greatest(s."at", e.t)) as valid_to, s.node, s.number, e.t is null as open
from told s left join ends e on e.node = s.node and e.number = s.number where s.kind = 'SubscriptionSet'
"""
SESSIONS = """
with told as (select * from events where kind in ('SessionOpened', 'SessionClosed', 'NodeStarted')),
after as (select s.node, s.number, min_by(o, o.number) as o from told s join told o
  on o.node = s.node and (o.client = s.client or o.kind = 'NodeStarted') and o.number > s.number group by all)
select s.client, s.node, s."at" as opened_at, case when a.o is not null then greatest(s."at", a.o."at") end as closed_at,
  if(a.o.kind = 'NodeStarted', 'restarted', a.o.code) as reason, (s.extra::json ->> 'durable')::boolean as durable, s.number, a.o is null as open
from told s left join after a on a.node = s.node and a.number = s.number where s.kind = 'SessionOpened'
"""
TABLES = {
    "publications": PUBLICATIONS,
    "matches": MATCHES,
    "matched": MATCHED,
    "deliveries": DELIVERIES,
    "subscriptions": SUBSCRIPTIONS,
    "sessions": SESSIONS,
}
PROBLEMS = """
with horizon as (select node, arg_max("at", number) as h, max("at") as latest from events group by node),
pubs as (select id, min(accepted_at) as accepted_at from publications group by id),
did as (select id, client, min("at") filter (step = 'delivered') as delivered_at,
          count(*) filter (step = 'delivered') as firsts, count(*) filter (step = 'deliveryqueued') as queued,
          count(*) as accounted, max(node) as node
        from deliveries group by all),
owed as (select id, client, max(matched_at) as matched_at, arg_max(connector, (matched_at, connector)) as connector
        from matches group by id, client),
joined as (select coalesce(o.id, d.id) as id, coalesce(o.client, d.client) as client, o.matched_at,
           d.delivered_at, d.firsts, d.queued, d.accounted, o.connector as place, p.accepted_at
         from owed o full join did d on o.id = d.id and o.client = d.client
         left join pubs p on p.id = coalesce(o.id, d.id)),
waits as (select b.*, (epoch_us(h.h) - epoch_us(b.matched_at) > 60e6) or
            (select max(epoch_us(h)) from horizon) - epoch_us(b.matched_at) > 660e6 as waited
          from joined b left join horizon h on h.node = b.place)
select case when accepted_at is null then 'orphaned' when ends > 1 then 'duplicate' else 'lost' end as problem,
  request::varchar as key, client
from (select node, request, sum(ends) as ends, min(accepted_at) as accepted_at, max(client) as client,
        max(outcome) as outcome from requests where request is not null group by all) r
left join horizon h using (node)
where accepted_at is null or ends > 1 or (ends = 0 and (outcome = 'forgotten'
  or epoch_us(if(accepted_at <= h.h, h.h, h.latest)) - epoch_us(accepted_at) > 60e6))
union all
select 'lost', p.id, publisher from publications p join horizon h using (node)
where p.id not in (select id from matched)
  and epoch_us(if(accepted_at <= h.h, h.h, h.latest)) - epoch_us(accepted_at) > 60e6
union all
select case when matched_at is null then 'orphaned' when firsts > 1 then 'duplicate'
       when coalesce(accounted, 0) = 0 then 'lost' else 'late' end, id, client
from waits where matched_at is null or firsts > 1 or (coalesce(accounted, 0) = 0 and waited)
  or (coalesce(accounted, 0) > 0 and queued = 0 and epoch_us(delivered_at) - epoch_us(accepted_at) > 60e6)
union all
select 'unrecorded', number::varchar, null from events where kind = 'Gap'
union all
select 'unrecorded', min(number)::varchar, null from events
where kind = 'RequestAnswered' and request is null group by node
"""
# Ends that came again in a later batch are rows of their own, and not counted again.
MINUTES = """
with once as (select * from ours where request is null union all
  (select distinct on (node, request) * from ours where request is not null
   order by node, request, accepted_at is null, ended_at))
select service, date_trunc('minute', ended_at) as minute, count(*) as requests,
  count(*) filter (outcome is distinct from 'answered') as errors,
  count(*) filter (outcome = 'queue-full') as full,
  quantile_disc(latency_us, 0.5) filter (outcome = 'answered' and latency_us is not null) as p50_us,
  quantile_disc(latency_us, 0.99) filter (outcome = 'answered' and latency_us is not null) as p99_us
from once where not open group by all
"""


def story(seed: int) -> Story:
    """What a broker, a matcher and two connectors might have recorded."""
    chance = random.Random(seed)
    told: Story = {BROKER: broker(chance), MATCHER: [], **{node: [] for node in CONNECTORS}}
    for i in range(40):
        publication(chance, told, i.to_bytes(12, "big"))
    for node in CONNECTORS:
        told[node] += [holding(chance, node) for _ in range(40)]
        chance.shuffle(told[node])
    told[MATCHER].insert(chance.randrange(20), E.Gap(50.0, 7))
    return told


def moment(chance: random.Random) -> float:
    """Whole seconds on three of five days, so that some are equal."""
    return chance.choice([0.0, DAY, 4 * DAY]) + chance.randrange(200)


def broker(chance: random.Random) -> list[Event]:
    found: list[Event] = [E.NodeStarted(0.0, b"broker")]
    while len(found) < 150:
        at, number, name = moment(chance), chance.randrange(1, 160), chance.choice(NAMES)
        # Mostly of a request that was accepted not long ago, sometimes of any before it or of none.
        near = chance.choice([max(1, len(found) - chance.randrange(6)), min(number, len(found)), 0])
        found.append(
            chance.choices(
                [
                    E.RequestAccepted(at, name, b"c%d" % number, number, chance.choice(NAMES)),
                    E.RequestAnswered(at + 0.25, near, b"w", 64, 0.5, 2, 0, chance.choice(NAMES)),
                    E.RequestRefused(at, near, chance.choice([b"queue-full", b""]), name, b"c", 5),
                    E.RequestRequeued(at, near or 1, b"w"),
                    E.RequestReposted(at, near or 1, b"peer"),
                    E.NodeStarted(at, b"broker"),
                ],
                [40, 30, 8, 8, 8, 2],
            )[0]
        )
    return found


def publication(chance: random.Random, told: Story, identity: bytes) -> None:
    at, those = moment(chance), chance.sample(CLIENTS, chance.randrange(4))
    attrs = chance.choice([b"{}", '{"città": "Łódź", "n": 1.5}'.encode(), b"[broken", b"\xff"])
    payload = chance.randbytes(chance.randrange(5))
    at_home = {client: chance.choice(CONNECTORS) for client in those}
    places = b"".join(client + at_home[client] for client in those)
    if chance.random() < 0.95:
        told[MATCHER].append(E.PublicationAccepted(at, identity, b"p", attrs, payload))
    if chance.random() < 0.9:
        told[MATCHER].append(E.PublicationMatched(at + 0.5, identity, places, len(those), 0.001))
    for client in [*those, *chance.sample(CLIENTS, chance.random() < 0.1)]:
        steps: list[Event] = [
            E.Delivered(at + chance.choice([1.0, 90.0]), identity, client),
            E.Redelivered(at + 2, identity, client),
            E.Acknowledged(at + 3, identity, client),
            E.Dropped(at + 2, identity, client, b"slow"),
            E.DeliveryQueued(at + 1, identity, client, b"{}", payload),
            E.Delivered(at + 4, identity, client),
        ]
        node = at_home.get(client, CONNECTORS[0])
        told[node] += chance.choices(steps, [6, 1, 3, 1, 1, 1], k=chance.randrange(3))


def holding(chance: random.Random, node: bytes) -> Event:
    at, client, name = moment(chance), chance.choice(CLIENTS), chance.choice(NAMES)
    connector = chance.choice([node, node, CONNECTORS[0]])
    held: list[Event] = [
        E.SubscriptionSet(at, client, connector, name, chance.choice([b"{}", b"\xff{", b""])),
        E.SubscriptionRemoved(at, client, connector, name),
        E.SessionOpened(at, client, chance.random() < 0.5),
        E.SessionClosed(at, client, chance.choice(NAMES)),
    ]
    return chance.choice(held)


def same(database: duckdb.DuckDBPyConnection, found: DataFrame, query: str) -> None:
    """The rows of a frame are those of a query, as many times."""
    expected = database.sql(query)
    asked = found
    if "names" in expected.columns:
        asked = asked.selectExpr("*", "array_sort(map_keys(attrs)) as names")
    database.register("found", asked.select(*expected.columns).toArrow())
    both = (("too much", "found", f"({query})"), ("missing", f"({query})", "found"))
    for what, one, other in both:
        rows = database.sql(f"select * from {one} except all select * from {other}").fetchall()
        assert not rows, (what, rows[:3])


def all_events(told: Story) -> pa.Table:
    batches = [batch(node, [(1, SKEW, found)]) for node, found in told.items()]
    return pa.Table.from_batches(batches)


@pytest.fixture(
    params=[(1, 10**6), (2, 150), *[(seed, 150) for seed in seeds(ci=0, nightly=20, first=3)]],
    ids=lambda param: f"{param[0]}, one batch" if param[1] > 1000 else f"{param[0]}, several",
)
def both(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    tmp_path: Path,
    write_journal: WriteJournal,
) -> tuple[Tables, duckdb.DuckDBPyConnection]:
    """A random story as ingest made tables of it, and as DuckDB sees its events."""
    seed, most = request.param
    told = story(seed)
    for node, found in told.items():
        groups = [found[at : at + 30] for at in range(0, len(found), 30)]
        place = tmp_path / "journal" / node.decode()
        write_journal(place, *groups, node=node, segment_bytes=3000)
        list(seal_all(place))  # some ranges are whole segments, others parts of one or not sealed
    tables = Tables(spark, str(tmp_path / "tables"))
    run_through(partial(ingest.start, tables, str(tmp_path / "journal"), max_events=most))
    assert (len(tables.markers()) > 1) == (most < 1000)
    database = duckdb.connect()
    database.execute("set timezone = 'UTC'")
    database.register("events", all_events(told))
    for name, query in {"requests": REQUESTS, **TABLES}.items():
        database.execute(f"create view {name} as {query}")
    return tables, database


def test_every_table_and_audit(both: tuple[Tables, duckdb.DuckDBPyConnection]) -> None:
    tables, database = both
    if len(tables.markers()) == 1:
        same(database, tables.read("requests"), "from requests")
    else:
        database.register("ours", tables.read("requests").toArrow())
        asked = [database.sql(SUMMED.format(each)).fetchall() for each in ("ours", "requests")]
        assert sorted(asked[0], key=str) == sorted(asked[1], key=str)
    for name in TABLES:
        same(database, tables.read(name), f"from {name}")
    same(database, _audit(tables), PROBLEMS)
    _minutes(tables, database)
    _replay(tables, database)
    before = {name: sorted(map(str, tables.read(name).collect())) for name in compact.TIMES}
    compact.run(tables)
    for name, rows in before.items():
        assert sorted(map(str, tables.read(name).collect())) == rows, name


def test_projections_of_anything(spark: SparkSession) -> None:
    """What tasks write of events is what Spark makes of them, of none too."""
    for events in (all_events(story(3)), all_events({BROKER: []})):
        frame = spark.createDataFrame(events, EVENTS)
        for name, projection in PROJECTIONS.items():
            theirs = TABLES_OF_SPARK[name].make(frame).toArrow()
            ours = project(events, projection).select(theirs.column_names)
            assert [str(field.type) for field in ours.schema] == [
                str(field.type) for field in theirs.schema
            ]
            assert sorted(map(str, ours.to_pylist())) == sorted(map(str, theirs.to_pylist()))


def _audit(tables: Tables) -> DataFrame:
    return ledger.audit(
        tables.read("events"),
        tables.read("requests"),
        tables.read("publications"),
        tables.read("matched"),
        tables.read("matches"),
        tables.read("deliveries"),
    )


def _minutes(tables: Tables, database: duckdb.DuckDBPyConnection) -> None:
    """Percentiles are within a bucket, the rest exact."""
    database.register("ours", tables.read("requests").toArrow())
    expected = database.sql(MINUTES).fetchall()
    ours = slo.minutes(slo.histogram(tables.read("requests")))
    full = "coalesce(codes['queue-full'], 0L) as full"
    names = ("service", "minute", "requests", "errors", full, "p50_us", "p99_us")
    database.register("minutes", ours.selectExpr(*names).toArrow())
    found = {row[:2]: row[2:] for row in database.sql("from minutes").fetchall()}
    assert found.keys() == {row[:2] for row in expected}
    for service, minute, *figures in expected:
        row = found[service, minute]
        assert list(row[:3]) == figures[:3]
        for told, true in zip(row[3:], figures[3:], strict=True):
            assert (told is None) == (true is None), (service, minute)
            assert told is None or told == pytest.approx(max(1, true), rel=0.011)


def _replay(tables: Tables, database: duckdb.DuckDBPyConnection) -> None:
    found = replay.owed(
        replay.within(tables.read("publications"), replay.Asked()),
        tables.read("matches"),
        tables.read("deliveries"),
    )
    owed = database.sql("""
        select m.id, list_sort(list(distinct client || connector)) from matches m
        where m.id in (select id from publications) and not exists (select 1 from deliveries d
          where d.id = m.id and d.client = m.client and (d.step in ('delivered', 'redelivered', 'acknowledged')
          or d.step = 'deliveryqueued' and not exists (select 1 from deliveries l where l.id = d.id
            and l.client = d.client and l.node = d.node and l.step = 'dropped' and l.number > d.number)))
        group by m.id""")
    assert {row.id: row.places for row in found.collect()} == dict(owed.fetchall())
