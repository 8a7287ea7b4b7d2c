"""`stoker gain`: what there is to gain, before anything is installed."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from schemas import BrokenConfiguration

CAPACITY_TOKENS = 3_000_000


def register(app: typer.Typer) -> None:
    """Adds `gain`."""
    app.command("gain")(gain)


def gain(
    events: Annotated[
        Path | None, typer.Option(help="RequestEvents as JSON lines, or a Mooncake trace; .gz is fine.")
    ] = None,
    metrics: Annotated[
        Path | None, typer.Option(help="A saved /metrics page of vLLM's; - reads it from stdin.")
    ] = None,
    prometheus: Annotated[str | None, typer.Option(help="URL of a Prometheus that scrapes vLLM.")] = None,
    hours: Annotated[float, typer.Option(help="Prometheus: how far to look back.", min=0.1, max=8760)] = 24.0,
    capacity_tokens: Annotated[
        int | None,
        typer.Option(
            help="KV cache of one replica; vLLM logs it at start as 'GPU KV cache size'. By default what explains the "
            "measured kv_cached_tokens; 3,000,000 where nothing was measured.",
            min=1,
        ),
    ] = None,
    block_tokens: Annotated[
        int | None, typer.Option(help="Tokens of a KV block; 512 for a trace, else 16.", min=1, max=65_536)
    ] = None,
    budget_share: Annotated[
        float, typer.Option(help="Part of a replica's prefill that warm-ups may use.", min=0, max=1)
    ] = 0.01,
    host_tier: Annotated[
        bool, typer.Option("--host-tier", help="Warm-ups move KV from host memory instead of computing it.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--json", help="Also write the figures as JSON.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="stoker.toml to read scopes and settings of.")] = None,
) -> None:
    """Show how many prefill tokens a day could be saved, and what kills the cache. Needs no stack."""
    if sum(source is not None for source in (events, metrics, prometheus)) != 1:
        raise BrokenConfiguration(
            "say where to look, one of: --events FILE (request events or a trace: the whole waterfall), "
            "--metrics FILE (`curl http://ENGINE/metrics | stoker gain --metrics -`), --prometheus URL"
        )
    if events is None:
        document = _from_counters(metrics, prometheus, hours)
    else:
        document = _from_events(events, capacity_tokens, block_tokens, budget_share, host_tier, config)
    if out is not None:
        out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _from_events(
    events: Path,
    capacity_tokens: int | None,
    block_tokens: int | None,
    budget_share: float,
    host_tier: bool,
    config: Path | None,
) -> dict[str, Any]:
    from rich.console import Console

    from jobs.settings import load_settings
    from stoker.gain import bounds, show
    from stoker.gain.asked import read_traffic
    from stoker.replay.mooncake import TRACE_BLOCK_TOKENS

    console = Console()
    settings = load_settings(config)
    traffic = read_traffic(events)
    if traffic.unreadable:
        typer.echo(f"{traffic.unreadable} lines are no RequestEvents: {traffic.first_fault}", err=True)
    if traffic.left_out:
        typer.echo(f"{traffic.left_out} requests left out: warm-ups, probes, and what failed", err=True)
    if capacity_tokens is None and traffic.measured is None:
        capacity_tokens = CAPACITY_TOKENS
    question = bounds.Question(
        capacity_tokens, block_tokens or (TRACE_BLOCK_TOKENS if traffic.trace else 16), budget_share, host_tier
    )
    found = bounds.waterfall(traffic, question, settings, lambda text: typer.echo(text, err=True))
    show.print_to(console, show.draw(found, question, console.width))
    return show.as_json(found)


def _from_counters(metrics: Path | None, prometheus: str | None, hours: float) -> dict[str, Any]:
    from rich.console import Console

    from stoker.gain import counters, show

    if prometheus is not None:
        found = counters.from_prometheus(prometheus, hours)
    elif metrics is not None and str(metrics) == "-":
        found = counters.from_page(sys.stdin.read(), time.time(), "stdin")
    else:
        assert metrics is not None
        try:
            found = counters.from_page(metrics.read_text("utf-8"), metrics.stat().st_mtime, str(metrics))
        except (OSError, UnicodeDecodeError) as fault:
            raise BrokenConfiguration(f"--metrics {metrics} cannot be read ({fault})") from None
    console = Console()
    show.print_to(console, show.draw_counters(found, console.width))
    return show.counters_as_json(found)
