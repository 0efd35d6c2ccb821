"""
Bar charts as small SVG files, readable in a light and a dark page. No library: a chart is some rectangles and texts.
"""

from collections.abc import Mapping
from html import escape
from typing import Final

WIDTH: Final = 760
LABELS: Final = 210  # pixels left of the bars
VALUES: Final = 90  # pixels right of the longest bar
BAR: Final = 14
GAP: Final = 12
STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#24292f}.t{font-size:15px;font-weight:600}.s{fill:#6e7781}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9198a1}}"
)

Groups = Mapping[str, Mapping[str, float | None]]


def bar_chart(title: str, subtitle: str, series: Mapping[str, str], groups: Groups) -> str:
    """
    Return an SVG with a group of horizontal bars for each key of `groups`, and in it a bar for each series.

    `series` has their colors, so that a contender has the same in every chart. A missing value has no bar; zero has a
    bar without length.
    """
    most = max((value for bars in groups.values() for value in bars.values() if value), default=1.0)
    scale = (WIDTH - LABELS - VALUES) / most
    parts = [
        f'<text class="t" x="0" y="18">{escape(title)}</text>',
        f'<text class="s" x="0" y="36">{escape(subtitle)}</text>',
        *_legend(series),
    ]
    top = 76
    for name, bars in groups.items():
        shown = [(contender, bars[contender]) for contender in series if bars.get(contender) is not None]
        middle = top + len(shown) * BAR / 2 + 4
        parts.append(f'<text x="{LABELS - 10}" y="{middle:.0f}" text-anchor="end">{escape(name)}</text>')
        for contender, value in shown:
            parts.append(_bar(top, (value or 0.0) * scale, series[contender], _number(value or 0.0)))
            top += BAR
        top += GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img">'
    return "\n".join([head, f"<title>{escape(title)}</title><style>{STYLE}</style>", *parts, "</svg>", ""])


def _bar(top: int, length: float, color: str, value: str) -> str:
    bar = f'<rect x="{LABELS}" y="{top}" width="{length:.1f}" height="{BAR - 2}" rx="2" fill="{color}"/>'
    return f'{bar}<text x="{LABELS + length + 6:.0f}" y="{top + BAR - 4}">{value}</text>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 20 else f"{value:.2g}"


def _legend(series: Mapping[str, str]) -> list[str]:
    parts, left = [], 0
    for name, color in series.items():
        parts.append(f'<rect x="{left}" y="48" width="12" height="12" rx="2" fill="{color}"/>')
        parts.append(f'<text x="{left + 17}" y="58">{escape(name)}</text>')
        left += 32 + 7 * len(name)
    return parts
