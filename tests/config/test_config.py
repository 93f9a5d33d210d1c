"""Which value wins, where it came from, and every mistake at once."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import homing
from homing.config import Config, load
from homing.config.catalogue import SETTINGS
from homing.config.sources import Given, contradictions, from_environment, merge
from homing.errors import ConfigError


def _load(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    assignments: tuple[str, ...] = (),
) -> Config:
    return load(path, environment=environment or {}, flags=flags, assignments=assignments)


def _write(directory: Path, text: str) -> Path:
    file = directory / "homing.toml"
    file.write_text(text)
    return file


def test_defaults_are_those_of_the_protocol() -> None:
    config = _load()
    assert (config.service.heartbeat, config.service.liveness) == (2.5, 3)
    assert config.service.localfe == ("tcp://127.0.0.1:5555",)
    assert config.push.subscribers == "127.0.0.1:7005"
    assert config.push.token_ttl == 300.0
    assert config.origin("push.token_ttl") == "default"


def test_file_then_environment_then_flags(tmp_path: Path) -> None:
    file = _write(tmp_path, '[service]\nname = "file"\nheartbeat = "1s"\nliveness = 5\n')
    config = _load(
        file,
        {"HOMING_SERVICE_NAME": "env", "HOMING_SERVICE_HEARTBEAT": "500ms"},
        {"service.name": "flag", "service.routers": None},
    )
    assert (config.service.name, config.origin("service.name")) == ("flag", "--name")
    assert config.service.heartbeat == 0.5
    assert config.origin("service.heartbeat") == "HOMING_SERVICE_HEARTBEAT"
    assert (config.service.liveness, config.origin("service.liveness")) == (5, f"{file}:4")
    assert config.origin("service.routers") == "default"


def test_the_file_is_named_by_the_environment_or_lies_in_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, '[service]\nname = "here"\n')
    assert (
        _load(environment={"HOMING_CONFIG": str(tmp_path / "homing.toml")}).service.name == "here"
    )
    monkeypatch.chdir(tmp_path)
    assert _load().service.name == "here"
    assert _load().origin("service.name") == "homing.toml:2"


def test_every_mistake_is_reported_at_once_with_its_place(tmp_path: Path) -> None:
    file = _write(
        tmp_path,
        '[service]\nhartbeat = 1\nliveness = 0\n\n[serivce]\nname = "x"\n\n'
        '[push]\ntoken_ttl = "soon"\n[journal]\nsegment_bytes = true\n\n[node]\nlog_level = "loud"\n',
    )
    with pytest.raises(ConfigError) as caught:
        _load(file, {"HOMING_PUSH_TOKEN_TL": "1"}, assignments=("node.data", "a.b=1"))
    problems = caught.value.problems
    assert problems == [
        "--set node.data: expected section.key=value",
        f"{file}:2: unknown setting service.hartbeat; did you mean service.heartbeat?",
        f"{file}:3: service.liveness: expected int >= 2; it takes: integer, 2 to 100",
        f"{file}:5: unknown section serivce; did you mean service?",
        f'{file}:9: push.token_ttl: expected a duration such as "2500ms", "30s" or "5min", got \'soon\'',
        f"{file}:11: journal.segment_bytes: expected int, got bool; it takes: size, 64KiB to 1GiB",
        f"{file}:14: node.log_level: invalid enum value 'loud'; it takes: debug | info | warning | error",
        "HOMING_PUSH_TOKEN_TL: unknown setting HOMING_PUSH_TOKEN_TL; did you mean HOMING_PUSH_TOKEN_TTL?",
        "--set a.b: unknown setting a.b",
    ]


def test_a_file_that_is_no_toml_names_the_line(tmp_path: Path) -> None:
    file = _write(tmp_path, '[service]\nname = "a\n')
    with pytest.raises(ConfigError, match=r"homing\.toml:2: .*column"):
        _load(file)


@pytest.mark.parametrize("value", ["9" * 5_000, "[" * 5_000])
def test_a_value_that_python_itself_cannot_read_is_told(tmp_path: Path, value: str) -> None:
    file = _write(tmp_path, f"[service]\nrouters = {value}\n")
    with pytest.raises(ConfigError, match=r"homing\.toml: a number of thousands of digits"):
        _load(file)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"\xff\xfe", "not UTF-8"), (b"#" * (1 << 20) + b"\n", "is it the right file")],
)
def test_a_file_that_is_no_text(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "homing.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=problem):
        _load(file)


def test_a_file_that_is_not_there_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        _load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="is a directory"):
        _load(tmp_path)


def test_a_mistake_is_told_of_the_flag_that_was_typed() -> None:
    with pytest.raises(ConfigError, match=r"^--drain: node\.drain_timeout: expected a duration"):
        load(Path("/dev/null"), flags={"node.drain_timeout": "x"}, environment={})


def test_port_offset_moves_the_endpoints_nobody_set() -> None:
    config = _load(flags={"node.port_offset": 100, "service.localfe": "tcp://0.0.0.0:5555"})
    assert config.service.localfe == ("tcp://0.0.0.0:5555",)
    assert config.service.localbe == ("tcp://127.0.0.1:5656",)
    assert config.dashboard.listen == "127.0.0.1:7107"
    assert config.origin("service.localbe") == "default + node.port_offset"
    path = _load(flags={"node.port_offset": 100, "service.localbe": "ipc:///run/homing"})
    assert path.service.localbe == ("ipc:///run/homing",)


def test_a_plug_may_listen_at_several_endpoints(tmp_path: Path) -> None:
    here, there = "tcp://0.0.0.0:5556", "ipc:///run/homing/workers"
    file = _write(tmp_path, f'[service]\nlocalfe = "{here}"\nlocalbe = ["{here}7", "{there}"]\n')
    config = _load(file, {"HOMING_SERVICE_TASKBE": f"{here}8, {there}2"})
    assert config.service.localfe == (here,), "one needs no list"
    assert config.service.localbe == (f"{here}7", there)
    assert config.service.taskbe == (f"{here}8", f"{there}2")
    assert config.origin("service.localbe") == f"{file}:3"
    comma = _load(assignments=('service.localbe=["ipc:///run/a,b"]',))
    assert comma.service.localbe == ("ipc:///run/a,b",), "a path with a comma"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "length >= 1"),
        (",".join(f"tcp://127.0.0.1:{port}" for port in range(1, 10)), "length <= 8"),
        (f"tcp://127.0.0.1:1,ipc:///{'p' * 107}", "a socket's path has at most 107 bytes"),
        ("tcp://127.0.0.1:1,5556", "expected host:port"),
        ("ipc:///run/x,ipc:///run/x", "listens at the same address as"),
    ],
)
def test_endpoints_that_no_plug_can_listen_at(value: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"--set service.localbe.*{problem}"):
        _load(assignments=(f"service.localbe={value}",))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"node.low_water": 4 << 20}, "must be below"),
        ({"node.reconnect_first": 6}, "must not be above"),
        ({"security.tls_cert": "a.pem"}, "must be given together with"),
        ({"security.mechanism": "plain"}, "needs security.users_file"),
        ({"security.mechanism": "curve"}, "needs security.key_file"),
        ({"security.mechanism": "curve", "security.key_file": "a.key"}, ""),
        ({"service.localfe": "127.0.0.1:7001"}, "same address as service.localfe"),
        ({"node.port_offset": 50000, "push.status": "127.0.0.1:1"}, ""),
    ],
)
def test_settings_that_contradict_each_other(values: dict[str, Any], problem: str) -> None:
    givens = [Given(name, value, "test") for name, value in values.items()]
    if not problem:
        assert list(contradictions(merge(givens))) == []
        return
    with pytest.raises(ConfigError, match=problem):
        merge(givens)


def test_lists_whose_items_have_commas_are_json() -> None:
    members = [
        "matcher:00000000000000a1@status=h:1,publishers=h:2",
        "dispatcher:00000000000000d1@nodes=h:3",
    ]
    text = msgspec.json.encode(members).decode()
    assert merge([Given("cluster.members", text, "test")]).cluster.members == tuple(members)
    assert merge([Given("service.group", "[::1]:5561, h:1", "test")]).service.group == (
        "[::1]:5561",
        "h:1",
    )
    with pytest.raises(ConfigError, match=r"cluster\.members"):
        merge([Given("cluster.members", '["unfinished', "test")])


def test_lists_from_text_and_from_toml(tmp_path: Path) -> None:
    file = _write(tmp_path, '[service]\npeers = ["tcp://a:5557"]\n')
    assert _load(file).service.peers == ("tcp://a:5557",)
    assert _load(environment={"HOMING_SERVICE_PEERS": "tcp://a:1, tcp://b:2"}).service.peers == (
        "tcp://a:1",
        "tcp://b:2",
    )
    assert _load(flags={"service.peers": ("tcp://c:3",)}).service.peers == ("tcp://c:3",)


def test_variables_of_the_tools_are_no_settings() -> None:
    assert _load(environment={"HOMING_DEBUG": "1", "HOMING_TEST_PROFILE": "ci"}).origins == {}


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_what_is_shown_can_be_read_back(name: str) -> None:
    """`homing config show` prints a homing.toml that means the same."""
    setting = SETTINGS[name]
    shown = tomllib.loads(f"x = {setting.show(setting.default)}")["x"]
    assert merge([Given(name, shown, "shown")]).value(name) == setting.default


@given(
    st.sampled_from(sorted(SETTINGS)),
    st.one_of(
        st.text(max_size=20),
        st.integers(),
        st.floats(),
        st.booleans(),
        st.lists(st.text(max_size=5), max_size=3),
        st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    ),
)
def test_any_value_is_taken_or_refused_with_a_config_error(name: str, value: object) -> None:
    try:
        problems, origin = [], merge([Given(name, value, "somewhere")]).origin(name)
    except ConfigError as error:
        problems, origin = error.problems, "somewhere"
    assert origin == "somewhere"
    assert all("somewhere" in problem for problem in problems)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "nan", "inf"])
def test_what_is_no_number_is_no_duration(value: object) -> None:
    with pytest.raises(ConfigError, match="token_ttl"):
        merge([Given("push.token_ttl", value, "somewhere")])


def test_every_setting_has_a_reason_and_a_default_it_takes() -> None:
    for setting in SETTINGS.values():
        assert len(setting.reason) >= 15, setting.name
        assert (
            merge([Given(setting.name, setting.default, "default")]).value(setting.name)
            == setting.default
        )


def test_variables_that_homing_reads_itself_are_no_unknown_settings() -> None:
    sources = Path(homing.__file__).parent.glob("**/*.py")
    code = "".join(path.read_text(encoding="utf-8") for path in sources)
    read = set(re.findall(r'"(HOMING_[A-Z_]*[A-Z])"', code))
    assert "HOMING_CACHE_DIR" in read
    given = from_environment(dict.fromkeys(read, "x"))
    assert [one for one in given if one.name not in SETTINGS] == []


def test_every_setting_is_read_by_something() -> None:
    """A setting that changes nothing is a lie."""
    source = Path(homing.__file__).parent
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in source.glob("**/*.py")
        if path.parent.name != "config"
    )
    idle = {
        setting.name
        for setting in SETTINGS.values()
        if not re.search(rf"\.{setting.key}\b|\"{setting.key}\"", code)
    }
    assert not idle


@pytest.mark.parametrize("section", ["service", "journal", "node"])
def test_what_is_just_beyond_a_range_or_far_is_told(section: str) -> None:
    for name, setting in SETTINGS.items():
        least, most = setting.meta.ge, setting.meta.le
        if setting.section == section and least is not None and most is not None:
            step = 1 if setting.bare_type is int else 1e-6
            for value in (least - step, most * 1.001 + step, "9" * 400, "nan", "-inf"):
                with pytest.raises(ConfigError, match=re.escape(f"{name}: ")):
                    load("/dev/null", assignments=[f"{name}={value}"], environment={})
