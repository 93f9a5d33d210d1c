"""Small plots as SVG text: lines over time and bars. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 30, 26
LEGEND = 14  # above the frame, where no line can cross it
STEPS = 4
MOST_TICKS = 5
# Seconds between two moments that are named below a plot; beyond, whole days.
MOMENTS = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10800,
    21600,
    43200,
    86400,
)
EDGE = 40  # a name that is nearer to an end of the axis begins or ends there
LONGEST_NAME = 28
COLOURS = ("#3b6fd4", "#d4573b", "#2f9e6e", "#8a5bd0", "#b58900")
_EMPTY = '<p class="soft">Nothing recorded.</p>'


class Line(NamedTuple):
    """Points by unix time."""

    name: str
    points: dict[float, float]


def lines(unit: str, series: Sequence[Line], *, logarithmic: bool = False) -> str:
    """One line a series over a common time axis."""
    times = sorted({at for line in series for at in line.points})
    values = [value for line in series for value in line.points.values()]
    if not times:
        return _EMPTY
    low, high = _span(values, logarithmic)
    first, last = times[0], times[-1] if len(times) > 1 else times[0] + 60

    def place(at: float, value: float) -> tuple[float, float]:
        scaled = _decades(value, low) if logarithmic else value
        return (
            LEFT + (at - first) / (last - first) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - (scaled - low) / (high - low) * (HEIGHT - TOP - BOTTOM),
        )

    parts = [*_levels(low, high, logarithmic), *_moments(first, last)]
    for number, line in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        spots = [place(at, line.points[at]) for at in sorted(line.points)]
        parts.append(_path(spots, colour))
        parts.append(_text(LEFT + 110 * number, LEGEND, line.name, colour))
    parts.append(_text(WIDTH - RIGHT, LEGEND, unit, "currentColor", "end"))
    return _svg(HEIGHT, parts)


def _decades(value: float, low: float) -> float:
    """The logarithm, but no lower than the frame: what is zero lies on its edge."""
    return max(low, math.log10(value)) if value > 0 else low


def bars(rows: Sequence[tuple[str, float]]) -> str:
    """Named quantities, one below the other."""
    if not rows:
        return _EMPTY
    longest = max(value for _, value in rows) or 1
    parts = []
    for i, (name, value) in enumerate(rows):
        y = 6 + 24 * i
        width = max(1.0, value / longest * (WIDTH - 330))
        parts.append(_text(200, y + 14, _short(name), "currentColor", "end"))
        parts.append(
            f'<rect x="210" y="{y}" width="{width:.1f}" height="18" rx="2" fill="{COLOURS[0]}"/>'
        )
        parts.append(_text(216 + width, y + 14, f"{value:,.0f}", "currentColor"))
    return _svg(12 + 24 * len(rows), parts)


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def _span(values: Sequence[float], logarithmic: bool) -> tuple[float, float]:
    """The axis: from 0, or between powers of ten; never empty."""
    if not logarithmic:
        return 0.0, STEPS * _round_step(max(values) / STEPS)
    above = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(above)))
    return float(low), float(max(low + 1, math.ceil(math.log10(max(above)))))


def _round_step(least: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten, for figures that people can read."""
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next((m * power for m in (1.0, 2.0, 2.5, 5.0) if m * power >= least), 10.0 * power)


def _levels(low: float, high: float, logarithmic: bool) -> list[str]:
    steps = int(high - low) if logarithmic else STEPS
    found = []
    for i in range(steps + 1):
        value = low + (high - low) * i / steps
        y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * i / steps
        shown = 10**value if logarithmic else value
        found.append(
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="currentColor" opacity=".15"/>'
        )
        told = f"{shown:,.0f}" if shown >= 1000 else f"{shown:.4g}"
        found.append(_text(LEFT - 6, y + 4, told, "currentColor", "end"))
    return found


def _moments(first: float, last: float) -> list[str]:
    form = "%H:%M:%S" if last - first < 600 else "%H:%M"
    if last - first >= 86400:
        form = "%m-%d %H:%M"
    found = []
    for at in _ticks(first, last):
        x = LEFT + (WIDTH - LEFT - RIGHT) * (at - first) / (last - first)
        anchor = "start" if x < LEFT + EDGE else "end" if x > WIDTH - RIGHT - EDGE else "middle"
        told = datetime.fromtimestamp(at, UTC).strftime(form)
        found.append(_text(x, HEIGHT - 8, told, "currentColor", anchor))
    return found


def _ticks(first: float, last: float) -> list[float]:
    """Whole moments, a few and evenly apart; where there is none the beginning."""
    span = last - first
    days = math.ceil(span / MOMENTS[-1] / MOST_TICKS) * MOMENTS[-1]
    step = next((step for step in MOMENTS if span <= MOST_TICKS * step), days)
    begin, end = math.ceil(first / step), math.floor(last / step)
    return [float(number * step) for number in range(begin, end + 1)] or [first]


def _path(spots: Sequence[tuple[float, float]], colour: str) -> str:
    if len(spots) == 1:
        (x, y) = spots[0]
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in spots)
    return f'<path d="M{steps}" fill="none" stroke="{colour}" stroke-width="1.6"/>'


def _text(x: float, y: float, words: str, colour: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="11" fill="{colour}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )


def _svg(height: float, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img">{"".join(parts)}</svg>'
