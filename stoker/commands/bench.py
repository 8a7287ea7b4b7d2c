"""`stoker bench NAME`: one line per figure, beside its baseline and goal."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer

from schemas import BrokenConfiguration

BENCHES = {
    "schemas": "decode and validate a RequestEvent of 8 segments",
    "simulator": "32 clients against the engine simulator at zero model time",
    "pipeline": "a preloaded topic through the job `warmup`",
    "latency": "event produced to command consumed, and on to Redis",
    "reward": "reward on its topic to its score read",
    "scale": "time and state of an event while tenants grow to 100,000, keys and window tenfold",
    "entropy": "entropy of a sliding window kept up to date, against a recount",
    "embed": "vectors of real questions in both precisions, against sentence-transformers",
    "cluster": "groups of a sliding window of real questions, against finding them again",
    "score": "an arrival, and a tick over 100,000 candidates of 1,000 tenants",
    "agent": "a forecast and a decision of the light agent, against a fixed threshold",
    "plan": "a tick over 100,000 candidates of 1,000 tenants, against a naive sort",
}


def register(app: typer.Typer) -> None:
    """Adds `bench`."""
    listing = " ".join(f"{name}: {meaning}." for name, meaning in BENCHES.items())
    app.command("bench", help=f"Measure one thing against its baseline. {listing}")(bench)


def bench(
    name: Annotated[str, typer.Argument(help=", ".join(BENCHES))],
    out: Annotated[Path | None, typer.Option("--json", help="Also write the figures as JSON.")] = None,
    events: Annotated[int | None, typer.Option(help="Size of the run, where the bench has one.", min=1)] = None,
    strict: Annotated[bool, typer.Option(help="Exit 1 when a goal is missed.")] = False,
) -> None:
    """Measure one thing against its baseline."""
    if name not in BENCHES:
        raise BrokenConfiguration(f"bench {name}: no such bench; there are {', '.join(BENCHES)}")
    module = importlib.import_module(f"stoker.bench.{name}")
    report = module.run() if events is None else module.run(events=events)
    report.write(out)
    raise typer.Exit(1 if strict and not report.ok else 0)
