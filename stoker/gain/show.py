"""Draws a waterfall and says what it means, for a terminal and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from analytics.prefix_linter import Divergence
from stoker.bench.figures import Figure, Report, at_least
from stoker.gain.bounds import ADOPT_POINTS, Killers, Question, Waterfall
from stoker.gain.counters import Counters

OTHER_CELLS = 64
"""What stands beside a bar, which takes the rest of the line within its bounds."""
SHORTEST_BAR, LONGEST_BAR = 12, 60
SHOWN_TEMPLATES = 5


def draw(found: Waterfall, question: Question, width: int) -> RenderableType:
    """The whole answer from events, on so many cells a line."""
    cells = _cells(width)
    table = _table(cells)
    stoker = found.now_share + found.gain_points / 100
    belady, endless = max(stoker, found.belady_share), max(stoker, found.belady_share, found.endless_share)
    now = "now, as measured" if found.measured_share is not None else f"now: LRU at {count(found.capacity_tokens)}"
    rows = (
        (now, 0.0, found.now_share, "cyan"),
        ("Stoker" + (" with a host tier" if question.host_tier else ""), found.now_share, stoker, "bold green"),
        ("perfect eviction (Belady)", stoker, belady, "yellow"),
        ("memory without end", belady, endless, "magenta"),
    )
    for name, start, end, style in rows:
        first = name == now
        step = end - start
        table.add_row(
            Text(name, style=style),
            bar(start, end, cells, style),
            f"{end:.1%}",
            "" if first else f"{step * 100:+.1f} points",
            count(found.share_per_day(step)),
        )
    left = 1 - endless
    table.add_row(
        Text("asked for the first time", style="dim"),
        bar(endless, 1.0, cells, "dim", "░"),
        f"{left:.1%}",
        "",
        count(found.share_per_day(left)),
    )
    return Group(Text(), table, Text(), _kills(found), Text(), _terms(found, question), Text(), verdict(found))


def verdict(found: Waterfall) -> Text:
    """What to do. A warm-up's prefill is off the users' way, and still has to be paid."""
    gain, price = found.gain_points, found.per_day(found.simulated.spent_tokens)
    freed = found.share_per_day(gain / 100)
    seen = f"{gain:+.1f} points, {count(freed)} prefill tokens a day off the users' way for {count(price)} of warm-ups"
    if found.adopt:
        more = "" if price <= freed else "; first tokens come sooner, prefill as a whole grows"
        return Text(f"Worth a trial in shadow mode: {seen}{more}.", style="bold green")
    head_room = 100 * (found.belady_share - found.lru_share)
    if head_room < ADOPT_POINTS:
        why = f"perfect eviction would win {head_room:.1f} points"
    elif gain < 0:
        why = "what warm-ups push out is asked for sooner than what they bring"
    else:
        why = (
            f"perfect eviction would win {head_room:.0f} points, and warm-ups within this budget win so little of them"
        )
    return Text(
        f"Don't adopt Stoker for this traffic: {seen}, below {ADOPT_POINTS:.0f} points; {why}.", style="bold red"
    )


def draw_counters(found: Counters, width: int) -> RenderableType:
    """The whole answer from counters, on so many cells a line."""
    cells = _cells(width)
    table = _table(cells)
    models = found.models if len(found.models) == 1 else (*found.models, found.total)
    for model in models:
        asked = max(model.query_tokens, model.prompt_tokens)
        table.add_row(
            Text(f"now: {model.model or 'all'}", style="cyan"),
            bar(0.0, model.now_share, cells, "cyan"),
            f"{model.now_share:.1%}",
            "",
            _day(found, model.hit_tokens),
        )
        table.add_row(
            Text("upper bound", style="magenta"),
            bar(model.now_share, 1.0, cells, "magenta", "░"),
            "100.0%",
            f"{100 * (1 - model.now_share):+.1f} points",
            _day(found, asked - model.hit_tokens),
        )
    total = found.total
    span = "an unknown time" if found.span_s is None else f"{found.span_s / 3600:,.1f} h"
    terms = Text(
        f"vLLM's own counters over {span}: {count(max(total.query_tokens, total.prompt_tokens))} prompt tokens. They "
        "do not tell whether what was missed had ever been asked for, and no cache has what is asked for first. "
        "`stoker gain --events FILE` tells the two apart.",
        style="dim",
    )
    return Group(Text(), table, Text(), terms, Text(), _counters_verdict(total.now_share))


def as_json(found: Waterfall) -> dict[str, Any]:
    """The document of DESIGN §8, and what the linter found."""
    shares = {
        "now": found.now_share,
        "lru": found.lru_share,
        "stoker": found.stoker_share,
        "belady": found.belady_share,
        "infinite": found.endless_share,
    }
    figures = [Figure(f"hit_share.{name}", share, baseline=found.lru_share) for name, share in shares.items()]
    figures += [
        Figure("gain_points", found.gain_points, "points", goal=at_least(ADOPT_POINTS)),
        Figure("recovered_tokens_per_day", found.share_per_day(found.gain_points / 100), "tokens/day"),
        Figure("warm_cost_tokens_per_day", found.per_day(found.simulated.spent_tokens), "tokens/day"),
        Figure("prompt_tokens", found.prompt_tokens, "tokens"),
        Figure("capacity_tokens", found.capacity_tokens, "tokens"),
        Figure("requests", found.requests),
        Figure("span", found.span_ms / 1000, "s"),
    ]
    return {
        **Report("gain", figures).as_json(),
        "adopt": found.adopt,
        "killers": [_as_json(divergence) for divergence in found.killers.divergences],
    }


def counters_as_json(found: Counters) -> dict[str, Any]:
    """The document of DESIGN §8."""
    total = found.total
    figures = [
        Figure("hit_share.now", total.now_share),
        Figure("hit_share.upper_bound", 1.0, baseline=total.now_share),
        Figure("prompt_tokens", max(total.query_tokens, total.prompt_tokens), "tokens"),
    ]
    missed = found.per_day(max(total.query_tokens, total.prompt_tokens) - total.hit_tokens)
    if missed is not None:
        figures.append(Figure("recoverable_tokens_per_day.upper_bound", missed, "tokens/day"))
    return Report("gain", figures).as_json()


def bar(start: float, end: float, cells: int, style: str, cell: str = "█") -> Text:
    """A step of a waterfall of so many cells; never nothing where there is something."""
    left, right = round(start * cells), round(end * cells)
    if end > start and right == left:
        left, right = (left, left + 1) if left < cells else (cells - 1, cells)
    return Text(" " * left) + Text(cell * max(0, right - left), style=style) + Text(" " * (cells - max(left, right)))


def count(tokens: float) -> str:
    """A number of tokens for people.

    >>> count(3_000_000), count(4_700_000_000), count(812)
    ('3.00 M', '4.70 G', '812')
    """
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(tokens) >= size:
            return f"{tokens / size:.3g} {unit}" if abs(tokens) >= 10 * size else f"{tokens / size:.2f} {unit}"
    return f"{tokens:.0f}"


def print_to(console: Console, what: RenderableType) -> None:
    """Prints, and wraps no bar."""
    console.print(what, highlight=False)


def _cells(width: int) -> int:
    return max(SHORTEST_BAR, min(LONGEST_BAR, width - OTHER_CELLS))


def _table(cells: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("found cached", no_wrap=True)
    table.add_column(f"0 %{'100 %':>{cells - 3}}", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("a day", justify="right", no_wrap=True)
    return table


def _kills(found: Waterfall) -> RenderableType:
    killers = found.killers
    lines = [Text("what kills the cache", style="bold")]
    lines.append(
        Text(f"  {1 - found.endless_share:.1%} of the prompt tokens are asked for the first time: no cache has them.")
    )
    lost = found.endless_share - found.lru_share
    if lost > 0.0005 and killers.lost_gap_s is not None:
        lines.append(Text(f"  {lost:.1%} had been there and were evicted: {_gaps(killers)}."))
    lines += [Text(f"  {sentence(one)}") for one in killers.divergences[:SHOWN_TEMPLATES]]
    more = len(killers.divergences) - SHOWN_TEMPLATES
    if more > 0:
        lines.append(Text(f"  {more} more templates part early (--json FILE has all of them)."))
    return Group(*lines)


def _gaps(killers: Killers) -> str:
    kept = "" if killers.kept_s is None else f"; LRU keeps what is not used for about {killers.kept_s:,.0f} s"
    return f"half of them came back after {killers.lost_gap_s:,.0f} s or more{kept}"


def sentence(one: Divergence) -> str:
    """What the linter found about a template."""
    begin = f"template {one.template} diverges at token {one.at_tokens} in {one.share:.0%} of {one.requests:,} requests"
    if one.freed_tokens_per_h is None:
        return f"{begin}; blocks have no roles, so whether anything can be moved is not known."
    what = (
        f"something within its {one.role} segment changes every time; moving that to the end"
        if one.within
        else f"moving its {one.role} segment number {one.segment + 1} behind what is always the same"
    )
    return f"{begin}: {what} frees {count(one.freed_tokens_per_h)} prefill tokens an hour."


def _terms(found: Waterfall, question: Question) -> Text:
    hours = found.span_ms / 3_600_000
    caches = f"{found.replicas} caches" if found.replicas > 1 else "one cache"
    origin = ", where LRU finds what was measured" if found.calibrated else ""
    budget = (
        "warm-ups move what was evicted back from a host tier, at most one token for each one asked for"
        if question.host_tier
        else f"warm-ups prefill, with at most {question.budget_share:.1%} of a replica's prefill"
    )
    measured = ""
    if found.measured_share is not None:
        measured = f" The engines measured {found.measured_share:.1%}; simulated LRU finds {found.lru_share:.1%}."
        if abs(found.measured_share - found.lru_share) > ADOPT_POINTS / 100:
            measured += (
                " They differ by more than the gain that matters: capacity or block size are not the engines' own."
            )
    size = f"{caches} of {count(found.capacity_tokens)} tokens in blocks of {found.block_tokens}{origin}"
    warmed = f"{found.simulated.commands:,} warm-ups, {count(found.simulated.spent_tokens)} tokens"
    return Text(
        f"{found.requests:,} requests in {hours:,.1f} h, {count(found.prompt_tokens)} prompt tokens; a day is "
        f"extrapolated. Simulated: {size}. Stoker is its own decisions as released (prefix tree, planner, budget), "
        f"with nobody held out and prefill in no time; {budget}: {warmed}.{measured}",
        style="dim",
    )


def _counters_verdict(now_share: float) -> Text:
    room = 100 * (1 - now_share)
    if room < ADOPT_POINTS:
        return Text(f"Don't adopt Stoker: {room:.1f} points are missed at all.", style="bold red")
    return Text(f"At most {room:.1f} points to gain, and surely less.", style="bold yellow")


def _day(found: Counters, tokens: float) -> str:
    per_day = found.per_day(tokens)
    return "-" if per_day is None else count(per_day)


def _as_json(one: Divergence) -> dict[str, Any]:
    return {
        "template": one.template,
        "requests": one.requests,
        "at_tokens": one.at_tokens,
        "role": one.role,
        "share": one.share,
        "freed_tokens_per_h": one.freed_tokens_per_h,
    }
