"""`make compiled` must test the compiled wheel, not the checkout beside it."""

from __future__ import annotations

import importlib
import os

import pytest

HOT = [
    "homing.wire.reader",
    "homing.wire.mdp",
    "homing.service.dispatch",
    "homing.service.handing",
    "homing.service.asking",
    "homing.service.client_core",
    "homing.service.stream",
    "homing.service.bodies",
    "homing.node.turn",
    "homing.node.link",
    "homing.node.zmtp",
]


@pytest.mark.parametrize("name", HOT)
def test_the_hot_path_has_the_form_that_was_asked_for(name: str) -> None:
    path = importlib.import_module(name).__file__ or ""
    assert path.endswith(".so" if os.environ.get("COMPILED_FORM") else ".py")
