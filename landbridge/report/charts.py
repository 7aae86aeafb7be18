"""Charts as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from landbridge.intervals import Rate
from landbridge.report.html import escape

WIDTH, HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 16, 46
_COLOURS = 4


@dataclass(frozen=True)
class Series:
    """A line, with a band where ``low`` and ``high`` are given. All of one length; finite."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class _Frame:
    """Data to picture coordinates."""

    x: tuple[float, float]
    y: tuple[float, float]
    height: int = HEIGHT

    def px(self, value: float) -> float:
        return round(_LEFT + (value - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - _LEFT - _RIGHT), 1)

    def py(self, value: float) -> float:
        room = self.height - _TOP - _BOTTOM
        return round(_TOP + (1 - (value - self.y[0]) / (self.y[1] - self.y[0])) * room, 1)

    def points(self, x: Sequence[float], y: Sequence[float]) -> str:
        return " ".join(f"{self.px(a)},{self.py(b)}" for a, b in zip(x, y, strict=True))


def line_chart(
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    y_range: tuple[float, float] | None = None,
    percent: bool = False,
) -> str:
    """Lines over a shared axis; a placeholder where there is nothing to draw."""
    drawn = [one for one in series if len(one.x)]
    if not drawn:
        return '<p class="soft">Nothing to draw yet.</p>'
    xs = [value for one in drawn for value in one.x]
    ys = [value for one in drawn for values in (one.y, one.low, one.high) for value in values]
    frame = _Frame(_spread(min(xs), max(xs)), y_range or _spread(min(ys), max(ys)))
    parts = [_axes(frame, x_label, y_label, percent)]
    for place, one in enumerate(drawn):
        colour = f"var(--c{place % _COLOURS})"
        if one.low:
            band = frame.points(one.x, one.high) + " " + frame.points(one.x[::-1], one.low[::-1])
            parts.append(f'<polygon points="{band}" fill="{colour}" opacity="0.16"/>')
        parts.append(
            f'<polyline points="{frame.points(one.x, one.y)}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        if len(one.x) == 1:
            parts.append(f'<circle cx="{frame.px(one.x[0])}" cy="{frame.py(one.y[0])}" r="3" fill="{colour}"/>')
        if len(drawn) > 1:
            parts.append(_key(place, one.name))
    return _svg("".join(parts), f"{y_label} over {x_label}")


def histogram(counts: Mapping[int, int], x_label: str, y_label: str) -> str:
    """A bar for every whole number from the smallest to the largest key."""
    if not counts or not sum(counts.values()):
        return '<p class="soft">Nothing to draw yet.</p>'
    low, high, total = min(counts), max(counts), sum(counts.values())
    frame = _Frame((low - 0.6, high + 0.6), (0.0, max(counts.values()) / total * 1.12))
    parts = [_axes(frame, x_label, y_label, True, list(range(low, high + 1, max(1, (high - low) // 12))))]
    for value in range(low, high + 1):
        share, (left, right) = counts.get(value, 0) / total, (frame.px(value - 0.4), frame.px(value + 0.4))
        top, bottom = frame.py(share), frame.py(0.0)
        parts.append(
            f'<rect x="{left}" y="{top}" width="{right - left:.1f}" height="{bottom - top:.1f}" fill="var(--c0)"/>'
            f'<text x="{(left + right) / 2:.1f}" y="{top - 4}" text-anchor="middle">{100 * share:.0f} %</text>'
        )
    return _svg("".join(parts), f"{y_label} by {x_label}")


def rates_chart(rates: Sequence[tuple[str, Rate]]) -> str:
    """A dot and its 95 % interval for every rate."""
    height = _TOP + _BOTTOM + 38 * len(rates)
    frame = _Frame((0.0, 1.0), (0.0, 1.0), height)
    parts = [_axes(frame, "success rate, 95 % Wilson interval", "", True, [k / 5 for k in range(6)], x_percent=True)]
    for place, (name, rate) in enumerate(rates):
        y, colour, (low, high) = _TOP + 38 * place + 24, f"var(--c{place % _COLOURS})", rate.interval()
        parts.append(
            f'<line x1="{frame.px(low)}" x2="{frame.px(high)}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"/>'
        )
        if rate.trials:
            parts.append(f'<circle cx="{frame.px(rate.value)}" cy="{y}" r="6" fill="{colour}"/>')
        parts.append(f'<text x="{_LEFT + 4}" y="{y - 10}">{escape(name)}: {escape(rate)}</text>')
    return _svg("".join(parts), "success rates", height)


def _axes(
    frame: _Frame, x_label: str, y_label: str, percent: bool, x_ticks: Sequence[float] | None = None,
    x_percent: bool = False,
) -> str:  # fmt: skip
    left, right, bottom = _LEFT, WIDTH - _RIGHT, frame.height - _BOTTOM
    parts = [f'<line x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}" stroke="var(--line)"/>']
    for tick in ticks(*frame.x) if x_ticks is None else x_ticks:
        text = f"{100 * tick:.0f} %" if x_percent else number(tick)
        parts.append(f'<text x="{frame.px(tick)}" y="{bottom + 17}" text-anchor="middle">{text}</text>')
    for tick in ticks(*frame.y) if y_label else ():
        text, y = f"{100 * tick:.0f} %" if percent else number(tick), frame.py(tick)
        parts.append(f'<line x1="{left}" x2="{right}" y1="{y}" y2="{y}" stroke="var(--line)" stroke-dasharray="2 4"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{text}</text>')
    parts.append(f'<text x="{(left + right) / 2}" y="{frame.height - 8}" text-anchor="middle">{escape(x_label)}</text>')
    return "".join(parts)


def ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Round numbers from ``low`` to ``high``: steps of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 10) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """``1.2M``, ``30k``, ``0.25``."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{suffix}"
    return f"{value:g}"


def _spread(low: float, high: float) -> tuple[float, float]:
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _key(place: int, name: str) -> str:
    y = _TOP + 8 + 16 * place
    return (
        f'<rect x="{WIDTH - 150}" y="{y - 5}" width="12" height="4" fill="var(--c{place % _COLOURS})"/>'
        f'<text x="{WIDTH - 132}" y="{y}">{escape(name)}</text>'
    )


def _svg(content: str, title: str, height: int = HEIGHT) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">'
        f"<title>{escape(title)}</title>{content}</svg>"
    )
