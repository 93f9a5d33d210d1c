"""Every setting and every limit of homing, with its reason beside it.

One class a section of homing.toml. The kinds below (`seconds`, `size`, …) carry the range
that a value may have and the reason for the default; `homing config show --why` and
docs/reference/config.md print them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
DAY = 86400.0
# Of one socket: a network or two, and a path on this machine; each is one more descriptor, and a word of the ready line.
MAX_ENDPOINTS = 8
# Where nothing but the machine sets a limit: what a file's length and a float's integers hold.
ANY_SIZE = 1 << 60
ANY_COUNT = 1 << 53


def seconds(reason: str, ge: float, le: float = 365 * DAY) -> Meta:
    """A duration; written as a number of seconds or as text with a unit."""
    return Meta(ge=ge, le=le, description=reason, extra={"unit": "seconds"})


def size(reason: str, ge: int, le: int = ANY_SIZE) -> Meta:
    """A number of bytes; written as an integer or as text with a unit."""
    return Meta(ge=ge, le=le, description=reason, extra={"unit": "bytes"})


def count(reason: str, ge: int, le: int = ANY_COUNT) -> Meta:
    """How many of something."""
    return Meta(ge=ge, le=le, description=reason)


def text(reason: str, pattern: str | None = None, secret: bool = False) -> Meta:
    """A string, or a list of them; a secret one is never shown."""
    return Meta(pattern=pattern, description=reason, extra={"secret": secret})


def endpoint(reason: str) -> Meta:
    """Where a node of ours listens; left at its default it moves with node.port_offset."""
    return Meta(description=reason, extra={"endpoint": True})


def endpoints(reason: str) -> Meta:
    """The same for one that may listen at several; homing's own commands dial the first."""
    return Meta(
        description=reason, extra={"endpoint": True}, min_length=1, max_length=MAX_ENDPOINTS
    )


def choice(reason: str) -> Meta:
    """One of a few words, or yes and no."""
    return Meta(description=reason)


class Service(Struct, frozen=True, kw_only=True):
    """The service plane: brokers, their sockets and their queues."""

    name: Annotated[
        str,
        text(
            "the broker's name is its routing id at peers: 1 to 255 characters", r"^[ -~]{1,255}$"
        ),
    ] = "homing"
    localfe: Annotated[tuple[str, ...], endpoints("clients connect here")] = (
        "tcp://127.0.0.1:5555",
    )
    localbe: Annotated[tuple[str, ...], endpoints("workers connect here")] = (
        "tcp://127.0.0.1:5556",
    )
    cloudfe: Annotated[str, endpoint("peers' cloudbe connect here")] = "tcp://127.0.0.1:5557"
    statebe: Annotated[str, endpoint("peers hear of our capacity here")] = "tcp://127.0.0.1:5558"
    taskfe: Annotated[tuple[str, ...], endpoints("clients with JSON headers")] = (
        "tcp://127.0.0.1:5560",
    )
    taskbe: Annotated[tuple[str, ...], endpoints("workers with JSON headers")] = (
        "tcp://127.0.0.1:5561",
    )
    peers: Annotated[
        tuple[str, ...],
        text(
            "`name=cloudfe` of each peer; its statebe is at the next port, or say `name=cloudfe|statebe`"
        ),
    ] = ()
    when_disk_full: Annotated[
        Literal["refuse", "serve"],
        choice("while the journal's disk is full: refuse new requests, or serve them unrecorded"),
    ] = "refuse"
    group: Annotated[
        tuple[str, ...],
        text("taskbe of the group's other brokers: task workers fall back on them"),
    ] = ()
    heartbeat: Annotated[
        float,
        seconds(
            "often enough to notice a dead worker within 10 s, seldom enough to cost nothing",
            0.01,
            3600,
        ),
    ] = 2.5
    idle_beats: Annotated[
        int,
        count(
            "heartbeats a second that idle workers should send in all: beyond, those that can beat more slowly; they are 1 to 2 % of a core",
            1,
        ),
    ] = 500
    liveness: Annotated[
        int,
        count(
            "heartbeats missed before a worker counts as gone: one may be lost, two be late",
            2,  # an answer to a heartbeat is always a moment late for the next
            100,
        ),
    ] = 3
    request_timeout: Annotated[
        float, seconds("how long a request may wait and run when its client did not say", 0.001)
    ] = 30.0
    absent_grace: Annotated[
        float,
        seconds("a service nobody serves is waited for this long: a restart is not noticed", 0),
    ] = 2.5
    max_message: Annotated[
        int, size("a broker forwards whole messages from memory, so one may not fill it", KIB)
    ] = 64 * MIB
    max_waiting: Annotated[
        int, count("requests that wait per service; with small bodies 400 MB in all", 1)
    ] = 1_000_000
    max_waiting_bytes: Annotated[
        int, size("bodies that wait per service, whatever their number", KIB)
    ] = 256 * MIB
    max_services: Annotated[
        int, count("names come from clients, so their number is not theirs to choose", 1)
    ] = 10_000
    max_credit: Annotated[
        int, count("requests one worker may hold: what is lost to a requeue when it dies", 1, 65535)
    ] = 1024
    at_most_once: Annotated[
        tuple[str, ...],
        text("services whose requests must never run twice: a lost worker means a NAK"),
    ] = ()
    state_interval: Annotated[
        float,
        seconds(
            "capacity is told to peers on change, but no oftener than this; and with every heartbeat",
            0.001,
            60,
        ),
    ] = 0.05
    look_out: Annotated[
        float,
        seconds(
            "look for the next message before sleeping, where that has paid: waking costs more",
            0,
            0.1,
        ),
    ] = 0.0002
    routers: Annotated[
        int, count("router processes; 0 routes in the broker's own process", 0, 256)
    ] = 0
    route: Annotated[
        str,
        text("`module:function` asked of every request: the service to use, or a refusal"),
    ] = ""


class Push(Struct, frozen=True, kw_only=True):
    """The push plane: matchers, dispatchers, connectors, the authority."""

    publishers: Annotated[str, endpoint("a matcher takes publications here")] = "127.0.0.1:7001"
    status: Annotated[str, endpoint("matchers tell each other of the ring here")] = "127.0.0.1:7002"
    dispatcher: Annotated[str, endpoint("matchers and dispatchers connect here")] = "127.0.0.1:7003"
    connector: Annotated[str, endpoint("dispatchers connect here")] = "127.0.0.1:7004"
    subscribers: Annotated[str, endpoint("subscribers connect here")] = "127.0.0.1:7005"
    authority: Annotated[str, endpoint("tokens are asked for here, over HTTP")] = "127.0.0.1:7006"
    plan: Annotated[
        str,
        text("a placement plan (JSON) that matchers follow; empty: each holds every subscription"),
    ] = ""
    matching: Annotated[
        Literal["here", "spark"],
        choice("spark: matchers only take publications, and `homing pipeline live` matches them"),
    ] = "here"
    token_ttl: Annotated[
        float,
        seconds(
            "long enough to reconnect through a bad network, too short to be worth stealing", 1, DAY
        ),
    ] = 300.0
    auth_timeout: Annotated[
        float,
        seconds("a connection that does not authenticate holds a descriptor for nothing", 0.1, DAY),
    ] = 10.0
    keepalive: Annotated[
        float,
        seconds("a subscriber silent for longer is gone: three times what carriers allow", 1, DAY),
    ] = 90.0
    max_command: Annotated[
        int, size("a subscriber's largest command: some thousand fields with long lists", KIB, GIB)
    ] = 256 * KIB
    origins: Annotated[
        tuple[str, ...],
        text("pages that may open a WebSocket; empty: all, as every session needs a token"),
    ] = ()
    slow: Annotated[
        Literal["drop-oldest", "disconnect"],
        choice("what becomes of a slow client that is not durable and asked for nothing else"),
    ] = "drop-oldest"
    client_buffer: Annotated[
        int, size("waits for one slow client at most: some seconds of a busy feed", KIB, GIB)
    ] = MIB
    wait: Annotated[
        float,
        seconds(
            "a durable session that moves waits so long for a connector that is away and may hold something "
            "older: a supervised restart; sessions may say otherwise",
            0,
            600,
        ),
    ] = 5.0
    spill_count: Annotated[
        int, count("owed to one durable session: a night of one every few seconds", 1, 10_000_000)
    ] = 10_000
    spill_bytes: Annotated[int, size("the same in bytes", KIB)] = 16 * MIB
    spill_age: Annotated[
        float, seconds("a durable session whose client stays away longer is given up", 1)
    ] = DAY
    spill_total: Annotated[
        int, size("kept for all sessions together; then the heaviest lose their oldest", MIB)
    ] = 512 * MIB


class Journal(Struct, frozen=True, kw_only=True):
    """The append-only record of what the fabric did."""

    enabled: Annotated[
        bool, choice("off, acknowledgements promise nothing beyond this process")
    ] = True
    directory: Annotated[str, text("segments are written here; relative to node.data")] = "journal"
    durability: Annotated[
        Literal["fsync", "os", "none"],
        choice("what an acknowledgement waits for: the disk, the kernel, or nothing"),
    ] = "fsync"
    commit_interval: Annotated[
        float, seconds("at most so long events gather for one write and one fsync", 0, 10)
    ] = 0.002
    segment_bytes: Annotated[
        int,
        size(
            "a segment is sealed at this size: small enough to delete, and to be read whole, large enough to scan",
            64 * KIB,
            GIB,
        ),
    ] = 64 * MIB
    segment_age: Annotated[
        float, seconds("a quiet segment is sealed after this long, so that Spark sees it", 0.1)
    ] = 60.0
    token: Annotated[
        str,
        text("`homing journal serve` asks its readers for it; empty: loopback only", secret=True),
    ] = ""
    seal_interval: Annotated[
        float,
        seconds(
            "finished segments get their Parquet copy this often, by a child process; 0: never", 0
        ),
    ] = 300.0
    retain_bytes: Annotated[
        int, size("oldest sealed segments go first once the journal is larger", MIB)
    ] = 10 * GIB
    retain_age: Annotated[
        float, seconds("sealed segments older than this go, full disk or not", 1)
    ] = 7 * DAY


class Node(Struct, frozen=True, kw_only=True):
    """The process: where it keeps things, what it logs, what it may hold."""

    data: Annotated[str, text("everything a node writes is below this directory")] = "homing-data"
    port_offset: Annotated[
        int,
        count("added to every default port, so that two fabrics fit on one machine", -5000, 50000),
    ] = 0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], choice("debug tells of every link")
    ] = "info"
    log_format: Annotated[
        Literal["auto", "human", "json"], choice("auto: human on a terminal, JSON otherwise")
    ] = "auto"
    metrics: Annotated[
        str, text("where this node serves /metrics, /livez and /readyz; empty: nowhere")
    ] = ""
    max_connections: Annotated[
        int,
        count("per listener; past it new ones are closed at once, so that those served stay so", 1),
    ] = 100_000
    listen_backlog: Annotated[
        int, count("connections the kernel keeps while a turn of the loop is long", 1, 65535)
    ] = 4096
    high_water: Annotated[
        int, size("bytes queued to one link at which its sources are paused", KIB, GIB)
    ] = 4 * MIB
    low_water: Annotated[
        int, size("and at which they go on: well below, so that they do not flutter", 0, GIB)
    ] = MIB
    handshake_timeout: Annotated[
        float, seconds("a connection that does not finish its handshake is closed", 0.1, 3600)
    ] = 10.0
    reconnect_first: Annotated[
        float,
        seconds(
            "first pause before a lost link is dialled again; it doubles, with jitter", 0.001, 60
        ),
    ] = 0.05
    reconnect_last: Annotated[
        float,
        seconds("longest pause: back within seconds of a peer, without a stampede", 0.01, 3600),
    ] = 5.0
    drain_timeout: Annotated[
        float,
        seconds(
            "work under way gets this long after SIGTERM; supervisors kill at 10 to 30 s", 0, 3600
        ),
    ] = 8.0


class Cluster(Struct, frozen=True, kw_only=True):
    """Who else is there."""

    members: Annotated[
        tuple[str, ...],
        text("`role:id@plug=host:port` of every other node; empty: the default endpoints here"),
    ] = ()
    membership: Annotated[
        Literal["static", "serf"],
        choice("who is there: the list in cluster.members, or what this node's Serf agent says"),
    ] = "static"
    serf: Annotated[str, text("RPC endpoint of this node's own Serf agent")] = "127.0.0.1:7373"
    serf_key: Annotated[str, text("the agent's rpc_auth key, if it has one", secret=True)] = ""
    advertise: Annotated[
        str, text("host that others reach us by; empty: the one each socket listens on")
    ] = ""
    expect: Annotated[
        int,
        count("serf: `homing up` is ready when it knows so many members, or after ten seconds", 0),
    ] = 0


class Pipeline(Struct, frozen=True, kw_only=True):
    """The Spark jobs over the journal."""

    tables: Annotated[str, text("tables are written here; relative to node.data")] = "tables"
    master: Annotated[str, text("Spark master, or sc://host for Spark Connect")] = "local[*]"
    shuffle_partitions: Annotated[
        int, count("two suit one machine; give a cluster two to three per core", 1, 100_000)
    ] = 2


class Dashboard(Struct, frozen=True, kw_only=True):
    """The web page, /metrics and the health endpoints."""

    enabled: Annotated[bool, choice("no page and no /metrics when off")] = True
    listen: Annotated[str, endpoint("the page, /metrics, /livez and /readyz")] = "127.0.0.1:7007"
    token: Annotated[
        str, text("who shows it may act; without one the page is read-only", secret=True)
    ] = ""


class Security(Struct, frozen=True, kw_only=True):
    """Who may connect, and how that is proven."""

    mechanism: Annotated[
        Literal["null", "plain", "curve"],
        choice("null trusts the network, which is right on loopback only"),
    ] = "null"
    users_file: Annotated[
        str,
        text(
            "one `name:password` or `name:public-key` a line, with rights, read again on SIGHUP; without it curve lets any key in"
        ),
    ] = ""
    key_file: Annotated[str, text("curve: this node's own key pair, from `homing keys new`")] = ""
    token_key: Annotated[
        str,
        text(
            "signs subscribers' tokens; empty: made at first start, kept in node.data", secret=True
        ),
    ] = ""
    previous_token_keys: Annotated[
        tuple[str, ...],
        text(
            "accepted too, of subscribers and nodes: a key that comes, or one that goes",
            secret=True,
        ),
    ] = ()
    api_keys: Annotated[
        tuple[str, ...],
        text("who may ask the authority for tokens; empty: anyone who can reach it", secret=True),
    ] = ()
    tls_cert: Annotated[
        str, text("PEM certificate chain for subscribers' connections; empty: no TLS")
    ] = ""
    tls_key: Annotated[str, text("PEM private key of tls_cert")] = ""


class Config(Struct, frozen=True, kw_only=True):
    """All sections; `origins` says where each `section.key` that is not a default came from."""

    service: Service = field(default_factory=Service)
    push: Push = field(default_factory=Push)
    journal: Journal = field(default_factory=Journal)
    node: Node = field(default_factory=Node)
    cluster: Cluster = field(default_factory=Cluster)
    pipeline: Pipeline = field(default_factory=Pipeline)
    dashboard: Dashboard = field(default_factory=Dashboard)
    security: Security = field(default_factory=Security)
    origins: dict[str, str] = field(default_factory=dict)

    def value(self, name: str) -> Any:
        """The value of `section.key`."""
        section, _, key = name.partition(".")
        return getattr(getattr(self, section), key)

    def origin(self, name: str) -> str:
        """Where the value of `section.key` came from."""
        return self.origins.get(name, "default")


SECTIONS: dict[str, type[Struct]] = {
    "service": Service,
    "push": Push,
    "journal": Journal,
    "node": Node,
    "cluster": Cluster,
    "pipeline": Pipeline,
    "dashboard": Dashboard,
    "security": Security,
}
