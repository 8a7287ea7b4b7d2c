"""Draws a demo: a live table on a terminal, a line every ten seconds elsewhere, and the summary at the end."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stoker.demo.config import DemoConfig
from stoker.demo.result import Figures

LINE_EVERY_S = 10.0
TABLE_EVERY_S = 2.0

LEGEND = (
    "An eligible first touch is a request whose prefix family plain LRU would have lost by then (a shadow of the pool, "
    "fed with the same requests, says so) and for which a warm-up of either arm was issued earlier. It counts for its "
    "unit's arm whatever became of the warm-up (intention to treat). Everything else is the rest, also the scopes that "
    "withhold their texts. Hit = share of prompt tokens that were cached; LRU = the same in the shadow, without "
    "warm-ups. The interval is a bootstrap over units."
)


class Screen:
    """Where a demo shows itself."""

    def __init__(self, console: Console, config: DemoConfig) -> None:
        self.console = console
        self._config = config
        self._live: Live | None = None
        self._next_s = 0.0

    def say(self, text: str) -> None:
        """One line, at once."""
        self.console.print(text, highlight=False, soft_wrap=True)

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        """Show the live table while the block runs; without a terminal `update` prints lines."""
        if not self.console.is_terminal:
            self._next_s = time.monotonic() + LINE_EVERY_S
            yield
            return
        self._next_s = 0.0
        with Live(console=self.console, refresh_per_second=4, transient=True) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    @property
    def due(self) -> bool:
        """Whether it is time for the next `update`; figures take a moment to make."""
        return time.monotonic() >= self._next_s

    def update(self, figures: Figures) -> None:
        """Show how things are now."""
        if self._live is not None:
            self._next_s = time.monotonic() + TABLE_EVERY_S
            self._live.update(live_view(figures, self._config))
        else:
            self._next_s = time.monotonic() + LINE_EVERY_S
            self.say(line(figures))


def line(figures: Figures) -> str:
    """The state in one line, for logs."""
    board, groups = figures.board, figures.groups
    commands = " ".join(f"{kind} {count}" for kind, count in sorted(board.commands_by_kind().items())) or "none"
    outcomes = " ".join(f"{status} {count}" for status, count in sorted(board.outcomes_by_status().items())) or "none"
    return (
        f"{figures.seconds:5.0f} s  {figures.events_per_s:5.1f} events/s  requests {figures.requests}"
        f"  entropy {entropies(figures)}  commands {commands}  outcomes {outcomes}"
        f"  hit warmed {share(groups.warmed.hit_rate)} held {share(groups.held_out.hit_rate)}"
        f" rest {share(groups.rest.hit_rate)}  dead {board.dead_records}"
    )


def live_view(figures: Figures, config: DemoConfig) -> RenderableType:
    """The live table."""
    board = figures.board
    head = Table.grid(padding=(0, 2))
    left = max(0.0, config.minutes * 60 - figures.seconds)
    planner = ", ".join(f"{pool} {state.state}" for pool, state in sorted(board.planners.items())) or "no word yet"
    for name, value in (
        ("traffic", f"{figures.events_per_s:.1f} events/s, {figures.requests} requests, {left:.0f} s left"),
        ("entropy", f"{entropies(figures)} bits in the last minute of the rules; {len(board.focuses)} focus insights"),
        ("planner", planner),
        ("dead letters", str(board.dead_records)),
    ):
        head.add_row(Text(name, style="bold"), value)
    return Group(head, work_table(figures), effect_table(figures))


def work_table(figures: Figures) -> Table:
    """Commands by kind and arm, outcomes by kind, status and reason."""
    table = Table(title="commands and what became of them", title_justify="left")
    for column in ("kind", "commands", "outcomes"):
        table.add_column(column, overflow="fold")
    arms, ends = figures.board.commands_by_arm(), figures.board.outcomes_by_kind()
    for kind in sorted({kind for kind, _ in arms} | {kind for kind, _, _ in ends}):
        issued = ", ".join(f"{arm} {count}" for (of, arm), count in sorted(arms.items()) if of == kind)
        told = Counter(
            {
                status if reason in (status, "done", "already_resident") else f"{status} ({reason})": count
                for (of, status, reason), count in ends.items()
                if of == kind
            }
        )
        table.add_row(kind, issued, ", ".join(f"{name} {count}" for name, count in told.most_common()))
    return table


def effect_table(figures: Figures) -> Table:
    """Hit rate and time to first token of warmed, held-out and rest."""
    table = Table(title="time to first token", title_justify="left")
    table.add_column("requests")
    for column in ("n", "units", "hit", "LRU", "mean ms", "p50 ms", "p95 ms", "p99 ms"):
        table.add_column(column, justify="right")
    groups = figures.groups
    rows = {"warmed": groups.warmed, "held out": groups.held_out, "rest": groups.rest, "all": groups.everything}
    if figures.lru_only is not None and figures.in_its_place is not None:
        rows["LRU only, a run before"] = figures.lru_only
        rows["the same requests here"] = figures.in_its_place
    for name, sample in rows.items():
        units = str(sample.distinct_units) if name in ("warmed", "held out") else ""
        figures_ms = [milliseconds(sample.mean_ms), *(milliseconds(sample.quantile_ms(q)) for q in (0.5, 0.95, 0.99))]
        rates = (share(sample.hit_rate), share(sample.lru_hit_rate))
        table.add_row(name, str(sample.count), units, *rates, *figures_ms)
    return table


def summary(figures: Figures, config: DemoConfig) -> RenderableType:
    """Everything at the end."""
    grid = Table.grid(padding=(0, 2))
    for name, value in facts(figures, config):
        grid.add_row(Text(name, style="bold"), value)
    verdict = Text(figures.verdict(config.seed), style="bold")
    return Group(grid, work_table(figures), effect_table(figures), Text(LEGEND, style="dim"), verdict)


def facts(figures: Figures, config: DemoConfig) -> list[tuple[str, str]]:
    """What the run was: workload, capacity, load, and whether everything adds up."""
    profile, board, account = config.profile, figures.board, figures.board.account
    busy = figures.seconds * profile.replicas * profile.prefill_tokens_per_s
    balance = "balances" if figures.unaccounted == 0 else f"DOES NOT BALANCE by {figures.unaccounted}"
    mode = {
        "full": "",
        "off": "; every command a shadow",
        "bad": "; warming without measure, also what nobody asks for",
    }[config.mode]
    misses, misses_alone = figures.adapter_misses
    found = [
        ("workload", profile.title + mode),
        (
            "capacity",
            f"{profile.replicas} replicas, {profile.capacity_tokens:,} tokens of KV each, "
            f"prefill {profile.prefill_tokens_per_s:,.0f} tokens/s each; one minute of the rules lasts "
            f"{60 / config.time_scale:.0f} s",
        ),
        (
            "load",
            f"requests used {figures.prefilled_tokens / busy:.0%} of the prefill, warm-ups "
            f"{board.warmed_tokens() / busy:.1%} (limit {config.policies()['budget']['prefill_share']:.0%}); "
            f"{failures(figures)} of {figures.requests} requests failed; generator late by {figures.behind_ms:.0f} ms",
        ),
        ("idle", idleness(figures)),
        (
            "events",
            f"{figures.records} in = {account.counted} counted + {account.second_phase} second phase + "
            f"{account.not_demand} not demand + {account.late} late + {account.duplicate} duplicate + "
            f"{account.dead} dead: {balance}",
        ),
        (
            "commands",
            f"{len(board.commands)}, {figures.open_commands} without an outcome; dead letters {board.dead_records}; "
            f"job restarts {figures.restarts}",
        ),
        (
            "insights",
            f"entropy {entropies(figures)} bits; {len(board.focuses)} focus, {board.seen['cluster']} clusters, "
            f"{board.seen['pattern']} patterns; {figures.judged} rewards, {board.seen['score']} scores changed by them",
        ),
    ]
    if profile.adapters:
        alone = f"; {misses_alone} in the run without Stoker" if figures.lru_only is not None else ""
        found.append(("adapters", f"{misses} requests waited for their adapter to be loaded{alone}"))
    return found


def idleness(figures: Figures) -> str:
    """The room of each replica: how much of the time it had no request, and how long the gaps are."""
    told = (
        f"{one.replica} {one.share:.0%} of the time without a request, gaps of {milliseconds(one.median_gap_ms)} ms "
        "in the median"
        for one in figures.idle
    )
    return "; ".join(told) or "-"


def entropies(figures: Figures) -> str:
    """Entropy of the queries by scope, newest pane."""
    found = figures.board.entropy_bits()
    return " ".join(f"{scope} {bits:.1f}" for scope, bits in found.items()) or "-"


def failures(figures: Figures) -> str:
    """How many requests failed, and how."""
    told = ", ".join(f"{name} {count}" for name, count in sorted(figures.errors.items()))
    return f"{sum(figures.errors.values())} ({told})" if told else "0"


def share(value: float | None) -> str:
    """A share as a percentage."""
    return "-" if value is None else f"{value:.0%}"


def milliseconds(value: float | None) -> str:
    """A time without decimals."""
    return "-" if value is None else f"{value:.0f}"
