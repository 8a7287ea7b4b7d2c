"""`stoker backtest KIND`: a decision played over data, beside its bounds and goals."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer

from schemas import BrokenConfiguration
from stoker.bench.figures import Report

BACKTESTS = {
    "cluster": "groups of real questions against the intents that people gave them",
    "score": "which answers are served again by few judgements, over people's judgements",
    "kv": "retention and warm-up of KV blocks on the Mooncake conversation trace",
    "absent": "whether replicas lack a prefix as often as is said, of hidden and of known capacity",
    "lora": "residency and prefetch of adapters on the LoRA trace",
    "forecast": "requests of the next 200 ms on the Azure trace, against averages and what chance leaves",
    "breaker": "what warm-ups cost users' hits on the simulator's block pool, by the breaker that holds them",
    "restart": "a rolling restart of four replicas, with Stoker and without",
    "focus": "crowds and what only looks like one, generated over the arrivals of the Azure trace",
}


def register(app: typer.Typer) -> None:
    """Adds `backtest`."""
    listing = " ".join(f"{kind}: {meaning}." for kind, meaning in BACKTESTS.items())
    app.command("backtest", help=f"Play one decision over data, beside its bounds. {listing}")(backtest)


def backtest(
    kind: Annotated[str, typer.Argument(help=", ".join(BACKTESTS))],
    out: Annotated[Path | None, typer.Option("--json", help="Also write the figures as JSON.")] = None,
    strict: Annotated[bool, typer.Option(help="Exit 1 when a goal is missed.")] = False,
) -> None:
    """Play one decision over data, beside its bounds."""
    if kind not in BACKTESTS:
        raise BrokenConfiguration(f"backtest {kind}: no such backtest; there are {', '.join(BACKTESTS)}")
    report: Report = importlib.import_module(f"stoker.backtests.{kind}").run()
    report.write(out)
    raise typer.Exit(1 if strict and not report.ok else 0)
