"""Rollouts that play in the page: tool, object and goal seen from the side and from above, arms side by side."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from landbridge.report.html import escape

_SIZE = 250
_MARGIN = 0.03
_VIEWS = (("from the side (x, z)", 0, 2), ("from above (x, y)", 0, 1))
_MARKS = {"tool": 6, "object": 7, "goal": 9}

# Elements are drawn here and only moved there: no element is made by the script, so no namespace has to be named.
_SCRIPT = """
(function () {
  var root = document.currentScript.parentElement;
  var data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
  var choice = root.querySelector('select'), button = root.querySelector('button');
  var clock = root.querySelector('output');
  var time = 0, last = null, playing = true;
  function at(path, name, t) {
    var k = 0;
    while (k < path.t.length - 1 && path.t[k + 1] <= t) k++;
    var a = path[name][k], n = Math.min(k + 1, path.t.length - 1), b = path[name][n];
    var f = n > k ? Math.min(1, (t - path.t[k]) / (path.t[n] - path.t[k])) : 0;
    return [0, 1, 2].map(function (i) { return a[i] + f * (b[i] - a[i]); });
  }
  function draw() {
    var end = 0;
    root.querySelectorAll('svg').forEach(function (svg) {
      var path = data.paths[svg.dataset.arm][choice.value], i = +svg.dataset.i, j = +svg.dataset.j;
      var scale = data.size / data.span[svg.dataset.view];
      function px(p) { return [(p[i] - data.low[i]) * scale, data.size - (p[j] - data.low[j]) * scale]; }
      svg.style.visibility = path ? 'visible' : 'hidden';
      if (!path) return;
      end = Math.max(end, path.t[path.t.length - 1]);
      ['tool', 'object', 'goal'].forEach(function (name) {
        var mark = svg.querySelector('.' + name);
        mark.style.display = path[name] ? '' : 'none';
        if (!path[name]) return;
        var p = px(at(path, name, time));
        mark.setAttribute('cx', p[0]);
        mark.setAttribute('cy', p[1]);
      });
      var trail = path.tool.filter(function (_, k) { return path.t[k] <= time; }).concat([at(path, 'tool', time)]);
      var line = trail.map(function (p) { return px(p).join(','); }).join(' ');
      svg.querySelector('polyline').setAttribute('points', line);
    });
    root.querySelectorAll('[data-result]').forEach(function (text) {
      var path = data.paths[text.dataset.result][choice.value];
      text.textContent = path ? path.result : 'no trial';
    });
    clock.textContent = Math.min(time, end).toFixed(1) + ' s';
    return end;
  }
  function frame(now) {
    if (playing && last !== null) time += (now - last) / 1000;
    last = now;
    if (time > draw() + 1.5) time = 0;
    requestAnimationFrame(frame);
  }
  choice.onchange = function () { time = 0; draw(); };
  button.onclick = function () { playing = !playing; button.textContent = playing ? 'pause' : 'play'; };
  draw();
  requestAnimationFrame(frame);
})();
"""


@dataclass(frozen=True)
class Rollout:
    """One episode of one arm. Positions are in metres, one an entry of ``times``."""

    arm: str
    condition: str
    """Rollouts of one initial condition are played together."""
    result: str
    times: Sequence[float]
    """Seconds, ascending, from 0."""
    places: dict[str, Sequence[Sequence[float]]]
    """``tool`` and, where known, ``object`` and ``goal`` → [x, y, z] each."""


def animation(rollouts: Sequence[Rollout]) -> str:
    """A player with a choice of initial conditions; empty where no rollout says where its tool was."""
    shown = [rollout for rollout in rollouts if rollout.times and "tool" in rollout.places]
    if not shown:
        return ""
    points = [point for rollout in shown for path in rollout.places.values() for point in path]
    low = [min(point[axis] for point in points) - _MARGIN for axis in range(3)]
    high = [max(point[axis] for point in points) + _MARGIN for axis in range(3)]
    span = [max(high[i] - low[i], high[j] - low[j]) for _, i, j in _VIEWS]
    arms = list(dict.fromkeys(rollout.arm for rollout in shown))
    paths: dict[str, dict[str, object]] = {arm: {} for arm in arms}
    for rollout in shown:
        paths[rollout.arm][rollout.condition] = {"t": rollout.times, "result": rollout.result, **rollout.places}
    # In a script element only "</" could end the data early.
    data = json.dumps({"size": _SIZE, "low": low, "span": span, "paths": paths}, allow_nan=False).replace("</", "<\\/")
    conditions = list(dict.fromkeys(rollout.condition for rollout in shown))
    options = "".join(f'<option value="{escape(one)}">{escape(one)}</option>' for one in conditions)
    pictures = "".join(_arm(arm, place, span) for place, arm in enumerate(arms))
    return (
        f'<div><p>initial condition <select aria-label="initial condition">{options}</select> '
        f'<button type="button">pause</button> <output></output></p><div class="row">{pictures}</div>'
        f'<script type="application/json">{data}</script><script>{_SCRIPT}</script></div>'
    )


def _arm(arm: str, place: int, span: Sequence[float]) -> str:
    views = "".join(
        f'<figure><svg viewBox="0 0 {_SIZE} {_SIZE}" width="{_SIZE}" height="{_SIZE}" data-arm="{escape(arm)}" '
        f'data-view="{view}" data-i="{i}" data-j="{j}"><rect width="{_SIZE}" height="{_SIZE}" fill="var(--wash)"/>'
        f"{_grid(span[view])}"
        f'<circle class="goal" r="{_MARKS["goal"]}" fill="none" stroke="var(--c2)" stroke-width="2"/>'
        f'<polyline fill="none" stroke="var(--c{place % 4})" opacity="0.5"/>'
        f'<circle class="object" r="{_MARKS["object"]}" fill="var(--c2)"/>'
        f'<circle class="tool" r="{_MARKS["tool"]}" fill="var(--c{place % 4})"/></svg>'
        f"<figcaption>{escape(name)}</figcaption></figure>"
        for view, (name, i, j) in enumerate(_VIEWS)
    )
    title = f'<b>{escape(arm)}</b> <span class="soft" data-result="{escape(arm)}"></span>'
    return f'<div><p>{title}</p><div class="row">{views}</div></div>'


def _grid(span: float) -> str:
    """A line every 0.1 m."""
    step = _SIZE / span * 0.1
    lines = range(1, math.ceil(_SIZE / step))
    return "".join(
        f'<path d="M{k * step:.1f} 0V{_SIZE}M0 {_SIZE - k * step:.1f}H{_SIZE}" stroke="var(--line)"/>' for k in lines
    )
