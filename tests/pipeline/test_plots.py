"""Plots: well-formed SVG for any numbers, and where the numbers say."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.pipeline.plots import HEIGHT, WIDTH, Line, bars, lines

points = st.dictionaries(st.floats(1e9, 2e9), st.floats(0, 1e12), max_size=8)


@given(st.lists(points, max_size=4), st.booleans())
def test_lines_are_svg_inside_the_frame(
    series: list[dict[float, float]], logarithmic: bool
) -> None:
    text = lines(
        "ms", [Line(f"<{i}>", each) for i, each in enumerate(series)], logarithmic=logarithmic
    )
    if not any(series):
        assert "Nothing recorded" in text
        return
    drawn = ElementTree.fromstring(text)
    for path in drawn.iter("path"):
        for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.attrib["d"]):
            assert 0 <= float(x) <= WIDTH
            assert 0 <= float(y) <= HEIGHT


@given(st.lists(st.tuples(st.text(max_size=40), st.floats(0, 1e15)), max_size=12))
def test_bars_are_svg(rows: list[tuple[str, float]]) -> None:
    printable = [(re.sub(r"[^\x20-\x7e]", "?", name), value) for name, value in rows]
    text = bars(printable)
    if rows:
        widths = [float(bar.attrib["width"]) for bar in ElementTree.fromstring(text).iter("rect")]
        assert len(widths) == len(rows)
        assert all(width <= WIDTH for width in widths)


@pytest.mark.parametrize(
    ("first", "last", "told"),
    [
        (0, 5, ["00:00:00", "00:00:01", "00:00:02", "00:00:03", "00:00:04", "00:00:05"]),
        (7, 61, ["00:00:15", "00:00:30", "00:00:45", "00:01:00"]),
        (100, 7000, ["00:30", "01:00", "01:30"]),
        (0, 3 * 86400, ["01-01 00:00", "01-02 00:00", "01-03 00:00", "01-04 00:00"]),
        (0.25, 0.75, ["00:00:00"]),
    ],
)
def test_named_moments_are_whole_and_evenly_apart(
    first: float, last: float, told: list[str]
) -> None:
    drawn = ElementTree.fromstring(lines("x", [Line("a", {first: 1.0, last: 2.0})]))
    words = [str(each.text) for each in drawn.iter("text")]
    assert [word for word in words if re.fullmatch(r"(\d\d-\d\d )?\d\d:\d\d(:\d\d)?", word)] == told


def test_a_name_that_is_cut_says_so() -> None:
    assert ">" + "a" * 27 + "…<" in bars([("a" * 29, 1.0)])
    assert ">" + "a" * 28 + "<" in bars([("a" * 28, 1.0)])


def test_a_larger_value_is_higher() -> None:
    drawn = ElementTree.fromstring(lines("x", [Line("a", {0.0: 1.0, 60.0: 2.0, 120.0: 4.0})]))
    path = next(each for each in drawn.iter("path") if each.attrib.get("fill") == "none")
    heights = [float(y) for _, y in re.findall(r"([\d.]+) ([\d.]+)", path.attrib["d"])]
    assert heights == sorted(heights, reverse=True)
