"""`homing config`: what is in effect, and where it came from."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from homing.cli import main
from homing.config.catalogue import SETTINGS


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No homing.toml and no variable of the developer's own."""
    monkeypatch.chdir(tmp_path)
    for setting in SETTINGS.values():
        monkeypatch.delenv(setting.variable, raising=False)


def test_show_prints_a_homing_toml_with_origins(capsys: pytest.CaptureFixture[str]) -> None:
    Path("homing.toml").write_text('[service]\nname = "paris"\n')
    assert main(["config", "show", "--set", "push.token_ttl=2min"]) == 0
    told = capsys.readouterr().out
    shown = tomllib.loads(told)
    assert {f"{section}.{key}" for section, body in shown.items() for key in body} == set(SETTINGS)
    assert shown["service"]["name"] == "paris"
    assert shown["push"]["token_ttl"] == "2min"
    assert "# homing.toml:2" in told
    assert "# --set push.token_ttl" in told


def test_show_output_is_a_config_of_the_same_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    main(["config", "show", "--set", "service.heartbeat=750ms", "--why"])
    Path("copy.toml").write_text(capsys.readouterr().out)
    assert main(["config", "show", "service", "--config", "copy.toml"]) == 0
    assert 'heartbeat = "750ms"' in capsys.readouterr().out


def test_one_section_and_only_changes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "node", "--changed", "--set", "node.log_level=debug"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "[node]",
        'log_level = "debug"  # --set node.log_level',
    ]


def test_nothing_changed_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--changed"]) == 0
    told = capsys.readouterr().out
    assert "defaults" in told
    assert tomllib.loads(told) == {}


def test_why_gives_the_reason_above_each_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "push", "--why"]) == 0
    told = capsys.readouterr().out
    assert all(f"# {one.reason}" in told for one in SETTINGS.values() if one.section == "push")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_secrets_are_never_shown(form: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["config", "show", *form, "--set", "security.token_key=hunter2"]
    assert main([*words, "--set", "security.api_keys=hunter2,hunter2"]) == 0
    told = capsys.readouterr().out
    assert "hunter2" not in told
    assert "(hidden)" in told


def test_json_has_value_origin_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "push", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["push.token_ttl"] == {
        "value": 300.0,
        "origin": "default",
        "default": 300.0,
        "unit": "seconds",
        "why": SETTINGS["push.token_ttl"].reason,
    }


def test_check_says_all_is_well_or_names_file_and_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("homing.toml").write_text("[push]\n\ntoken_ttl = 1\n")
    assert main(["config", "check"]) == 0
    Path("homing.toml").write_text("[push]\n\ntoken_ttl = 0\ntokn_ttl = 1\n")
    assert main(["config", "check"]) == 78
    told = capsys.readouterr().err
    assert "homing.toml:3: push.token_ttl" in told
    assert "homing.toml:4: unknown setting push.tokn_ttl; did you mean push.token_ttl?" in told
