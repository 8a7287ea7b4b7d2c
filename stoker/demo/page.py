"""The page of a demo: one HTML file with plots, readable without a network."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from stoker.demo.config import DemoConfig
from stoker.demo.effect import Sample
from stoker.demo.gain import EXACT, Gain
from stoker.demo.result import Figures
from stoker.demo.show import LEGEND, facts, share
from stoker.demo.statistics import Ratio

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

WARMED, HELD, REST, LRU = "#0f766e", "#c2410c", "#94a3b8", "#475569"
INK, PAPER, RULE = "#0f172a", "#ffffff", "#e2e8f0"
STATUS_COLOURS = {
    "applied": WARMED,
    "resident": "#5eead4",
    "held_out": HELD,
    "shadow": "#a78bfa",
    "expired": "#fbbf24",
    "skipped": "#cbd5e1",
    "rejected": "#f87171",
    "failed": "#b91c1c",
    "cancelled": "#64748b",
}

STYLE = f"""
:root {{ color-scheme: light; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: #f8fafc; color: {INK}; font: 16px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }}
main {{ max-width: 1180px; margin: 0 auto; padding: 40px 24px 64px; }}
h1 {{ font-size: 15px; letter-spacing: .08em; text-transform: uppercase; color: {LRU}; margin: 0 0 8px; }}
.verdict {{ font-size: 26px; line-height: 1.3; font-weight: 650; margin: 0 0 28px; max-width: 34em; }}
.tiles {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(160px, 1fr)); gap: 14px; margin-bottom: 22px; }}
.tile, figure {{ background: {PAPER}; border: 1px solid {RULE}; border-radius: 12px; }}
.tile {{ padding: 16px 18px; }}
.tile b {{ display: block; font-size: 30px; line-height: 1.15; font-variant-numeric: tabular-nums; }}
.tile span {{ display: block; color: {LRU}; font-size: 14px; }}
.tile .name {{ color: {INK}; font-weight: 600; margin-bottom: 4px; }}
.plots {{ display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 14px; }}
figure {{ margin: 0; padding: 14px 14px 6px; min-width: 0; }}
figure.wide {{ grid-column: 1 / -1; }}
figcaption {{ font-weight: 600; padding: 2px 6px 0; }}
figcaption small {{ display: block; font-weight: 400; color: {LRU}; }}
table {{ border-collapse: collapse; width: 100%; margin: 28px 0 12px; font-size: 14px; }}
td {{ border-top: 1px solid {RULE}; padding: 8px 12px 8px 0; vertical-align: top; }}
td:first-child {{ font-weight: 600; white-space: nowrap; }}
.legend {{ color: {LRU}; font-size: 14px; max-width: 60em; }}
@media (max-width: 800px) {{ .plots {{ grid-template-columns: 1fr; }} }}
"""


def page(figures: Figures, config: DemoConfig) -> str:
    """The whole document."""
    from plotly.offline import get_plotlyjs

    seed = config.seed
    verdict, rest = re.split(r"; |\. ", figures.verdict(seed), maxsplit=1)
    plots = (
        ("Time to first token through the run", "Mean of each span, in ms", _through_time(figures), True),
        ("Every eligible first touch", "Share of touches that waited at most so long", _waits(figures), False),
        ("What was found in cache", "Share of prompt tokens", _hits(figures), False),
        (
            "How sure the comparison is",
            "Ratio of times with its 95 % interval; left of 1 is faster",
            _forest(figures, seed),
            False,
        ),
        ("Commands and what became of them", "Outcomes by kind", _outcomes(figures), False),
    )
    drawn = "".join(_plot(title, subtitle, figure, wide) for title, subtitle, figure, wide in plots)
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(value)}</td></tr>" for name, value in facts(figures, config)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Stoker demo</title>'
        f"<style>{STYLE}</style><script>{get_plotlyjs()}</script></head><body><main>"
        f"<h1>Stoker demo</h1><p class=verdict>{html.escape(verdict)}</p>"
        f"<div class=tiles>{_tiles(figures, seed)}</div><div class=plots>{drawn}</div>"
        f"<table>{rows}</table><p class=legend>{html.escape(rest)}</p><p class=legend>{html.escape(LEGEND)}</p>"
        "</main></body></html>\n"
    )


def _tiles(figures: Figures, seed: int) -> str:
    balance = "every one accounted for" if figures.unaccounted == 0 else f"{figures.unaccounted} not accounted for"
    found = (
        ("mean wait, warmed / held out", *_ratio_words(figures.effect(seed))),
        ("p95 wait, warmed / held out", *_ratio_words(figures.tail_effect(seed))),
        ("all requests / without Stoker", *_ratio_words(figures.service_effect(seed))),
        ("tokens found, beyond plain LRU", *_gain_words(figures.gain)),
        ("commands", f"{len(figures.board.commands):,}", f"{figures.open_commands} without an outcome"),
        ("events in", f"{figures.records:,}", balance),
    )
    return "".join(
        f"<div class=tile><span class=name>{html.escape(name)}</span><b>{html.escape(value)}</b>"
        f"<span>{html.escape(note)}</span></div>"
        for name, value, note in found
    )


def _ratio_words(ratio: Ratio | None) -> tuple[str, str]:
    if ratio is None:
        return "–", "too few touches to say"
    return f"{ratio.value:.2f}", f"95 % interval {ratio.low:.2f} to {ratio.high:.2f}"


def _gain_words(gain: Gain | None) -> tuple[str, str]:
    if gain is None:
        return "–", "too few requests to say"
    interval = f"95 % interval {100 * gain.low:+.1f} to {100 * gain.high:+.1f}"
    return f"{100 * gain.value:+.1f} pt", f"{interval}; within {100 * EXACT:.0f} of 0 is nothing"


def _plot(title: str, subtitle: str, figure: Figure, wide: bool) -> str:
    body = figure.to_html(full_html=False, include_plotlyjs=False, config={"displayModeBar": False, "responsive": True})
    kind = " class=wide" if wide else ""
    return f"<figure{kind}><figcaption>{title}<small>{subtitle}</small></figcaption>{body}</figure>"


def _blank(**layout: Any) -> Figure:
    from plotly.graph_objects import Figure

    figure = Figure()
    figure.update_layout(
        height=layout.pop("height", 320),
        margin={"l": 56, "r": 16, "t": 12, "b": 44},
        paper_bgcolor=PAPER,
        plot_bgcolor=PAPER,
        font={"family": "system-ui, Segoe UI, Roboto, sans-serif", "size": 13, "color": INK},
        legend={"orientation": "h", "y": 1.12, "x": 0},
        **layout,
    )
    figure.update_xaxes(gridcolor=RULE, zeroline=False)
    figure.update_yaxes(gridcolor=RULE, zeroline=False)
    return figure


def _through_time(figures: Figures) -> Figure:
    from plotly.graph_objects import Bar, Scatter

    # What is on the second axis is drawn above the first: the bars belong behind the lines.
    figure = _blank(
        yaxis={"side": "right", "showgrid": False, "title": "prefix commands"},
        yaxis2={"overlaying": "y", "side": "left", "title": "ms", "rangemode": "tozero", "gridcolor": RULE},
    )
    middles = [(span.from_s + span.until_s) / 2 for span in figures.timeline]
    width = figures.timeline[0].until_s - figures.timeline[0].from_s if figures.timeline else 1.0
    figure.add_trace(
        Bar(
            x=middles,
            y=[span.commands for span in figures.timeline],
            width=[0.8 * width] * len(middles),
            name="prefix commands",
            marker_color=RULE,
        )
    )
    for name, colour, pick in (("warmed", WARMED, "warmed"), ("held out", HELD, "held_out"), ("rest", REST, "rest")):
        means = [getattr(span.groups, pick).mean_ms for span in figures.timeline]
        figure.add_trace(
            Scatter(
                x=middles,
                y=means,
                name=name,
                mode="lines+markers",
                connectgaps=True,
                line={"color": colour, "width": 3},
                yaxis="y2",
            )
        )
    figure.update_xaxes(title="seconds of traffic")
    return figure


def _waits(figures: Figures) -> Figure:
    from plotly.graph_objects import Scatter

    figure = _blank()
    groups = figures.groups
    for name, colour, sample in (("warmed", WARMED, groups.warmed), ("held out", HELD, groups.held_out)):
        times = sorted(sample.ttft_ms)
        shares = [(rank + 1) / len(times) for rank in range(len(times))]
        figure.add_trace(
            Scatter(
                x=times, y=shares, name=f"{name} (n = {len(times)})", line={"color": colour, "width": 3, "shape": "hv"}
            )
        )
    figure.update_xaxes(title="ms to the first token")
    figure.update_yaxes(tickformat=".0%", range=[0, 1.02])
    return figure


def _hits(figures: Figures) -> Figure:
    from plotly.graph_objects import Bar

    figure = _blank(barmode="group")
    groups = figures.groups
    rows: list[tuple[str, Sample]] = [
        ("warmed", groups.warmed),
        ("held out", groups.held_out),
        ("rest", groups.rest),
        ("all", groups.everything),
    ]
    names = [name for name, _ in rows]
    found, shadow = [sample.hit_rate for _, sample in rows], [sample.lru_hit_rate for _, sample in rows]
    for name, rates, colours in (
        ("found", found, [WARMED, HELD, REST, INK]),
        ("plain LRU would have had", shadow, [RULE] * 4),
    ):
        figure.add_trace(
            Bar(
                x=names,
                y=rates,
                name=name,
                marker_color=colours,
                text=[share(rate) for rate in rates],
                textposition="outside",
            )
        )
    figure.update_yaxes(tickformat=".0%", range=[0, 1.12])
    return figure


def _forest(figures: Figures, seed: int) -> Figure:
    from plotly.graph_objects import Scatter

    figure = _blank()
    rows: list[tuple[str, str, tuple[float, float, float] | None]] = [
        ("warmed / held out, mean", WARMED, _interval(figures.effect(seed))),
        ("warmed / held out, p95", WARMED, _interval(figures.tail_effect(seed))),
        ("all / without Stoker, mean", INK, _interval(figures.service_effect(seed))),
    ]
    chance = figures.control
    if chance is not None:
        rows.append(("control: arms shuffled", REST, (chance.median, chance.low, chance.high)))
    for name, colour, interval in reversed(rows):
        if interval is None:
            continue
        value, low, high = interval
        figure.add_trace(
            Scatter(
                x=[value],
                y=[name],
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": [high - value],
                    "arrayminus": [value - low],
                    "thickness": 3,
                },
                mode="markers",
                marker={"size": 13, "color": colour},
                showlegend=False,
            )
        )
    figure.add_vline(x=1, line={"color": INK, "dash": "dot", "width": 1})
    figure.update_layout(margin={"l": 190, "r": 24, "t": 12, "b": 44})
    return figure


def _interval(ratio: Ratio | None) -> tuple[float, float, float] | None:
    return None if ratio is None else (ratio.value, ratio.low, ratio.high)


def _outcomes(figures: Figures) -> Figure:
    from plotly.graph_objects import Bar

    figure = _blank(barmode="stack")
    by_status: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for (kind, status, _), count in figures.board.outcomes_by_kind().items():
        by_status[status][kind] += count
    kinds = sorted({kind for counts in by_status.values() for kind in counts}, reverse=True)
    for status in sorted(by_status, key=list(STATUS_COLOURS).index):
        counts = [by_status[status].get(kind, 0) for kind in kinds]
        figure.add_trace(
            Bar(y=kinds, x=counts, name=status.replace("_", " "), orientation="h", marker_color=STATUS_COLOURS[status])
        )
    figure.update_layout(margin={"l": 92, "r": 16, "t": 44, "b": 44}, legend={"traceorder": "normal", "y": 1.2})
    return figure
