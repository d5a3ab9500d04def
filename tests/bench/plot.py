"""Draws the pictures of docs/performance.md from the last lines of decode.py and serve.py.

    python tests/bench/plot.py decode OUT.svg < decode.json ; python tests/bench/plot.py turns OUT.svg < serve.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

WIDTH, HEIGHT, LEFT, BOTTOM = 720, 300, 60, 40
COLOURS = ("#4c78a8", "#e45756", "#54a24b", "#b279a2")
# vLLM 0.25.1 on one H200, the same shapes and load.
VLLM_STEP_MS = {
    "qwen3-0.6b": {1: 2.09, 2: 1.74, 4: 1.99, 8: 1.77, 16: 1.91, 32: 2.35},
    "llama-3.2-1b": {1: 1.82, 2: 2.33, 4: 1.90, 8: 2.48, 16: 2.10, 32: 1.97},
    "qwen3-8b": {1: 5.23, 2: 5.22, 4: 5.46, 8: 5.51, 16: 5.51, 32: 5.84},
}
VLLM_TURNS = {1: 7.5, 2: 12.6, 4: 24.6, 8: 44.4, 16: 72.5, 32: 106.0}

Series = dict[str, tuple[dict[int, float], str, bool]]


def main() -> None:
    kind, out = sys.argv[1], Path(sys.argv[2])
    rows = json.loads(sys.stdin.read())["rows"]
    series: Series = {}
    if kind == "decode":
        models = dict.fromkeys(row["model"] for row in rows)
        for colour, model in zip(COLOURS, models, strict=False):
            series[model] = ({row["batch"]: row["step_ms"] for row in rows if row["model"] == model}, colour, False)
            series[f"{model}, vLLM"] = (VLLM_STEP_MS[model], colour, True)
        out.write_text(chart(series, "milliseconds a decode step, by batch size"))
    else:
        series["Headrace"] = ({row["sessions"]: row["turns/s"] for row in rows}, COLOURS[0], False)
        series["vLLM 0.25.1"] = (VLLM_TURNS, COLOURS[1], True)
        out.write_text(chart(series, "turns a second, by sessions at once"))


def chart(series: Series, title: str) -> str:
    """Lines over 1, 2, 4 ... 32, evenly spaced; dashed where the flag is set."""
    xs = sorted({x for points, _, _ in series.values() for x in points})
    top = max(y for points, _, _ in series.values() for y in points.values()) * 1.08

    def at(x: int, y: float) -> tuple[float, float]:
        step = (WIDTH - LEFT - 180) / max(1, len(xs) - 1)
        return LEFT + xs.index(x) * step, HEIGHT - BOTTOM - y / top * (HEIGHT - BOTTOM - 30)

    parts = [f'<text x="{LEFT}" y="18" font-weight="bold">{title}</text>']
    for tick in range(5):
        value = top * tick / 4
        _, y = at(xs[0], value)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - 180}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.1f}</text>')
    for x in xs:
        parts.append(f'<text x="{at(x, 0)[0]:.1f}" y="{HEIGHT - 16}" text-anchor="middle">{x}</text>')
    for index, (name, (points, colour, dashed)) in enumerate(series.items()):
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py in (at(x, y) for x, y in sorted(points.items())))
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        y = 40 + 18 * index
        ends = f'x1="{WIDTH - 165}" y1="{y}" x2="{WIDTH - 140}" y2="{y}"'
        parts.append(f'<line {ends} stroke="{colour}"{dash} stroke-width="2"/>')
        parts.append(f'<text x="{WIDTH - 134}" y="{y + 4}">{name}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


if __name__ == "__main__":
    main()
