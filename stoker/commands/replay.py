"""`stoker replay`: play a trace or a generated workload through engines, as a gateway would."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from stoker.replay.sources import Workload

Format = Literal["mooncake", "azure", "generated"]


def register(app: typer.Typer) -> None:
    """Adds the command `replay`."""
    app.command("replay")(replay)


def replay(
    format_: Annotated[Format, typer.Option("--format", help="What the workload is read as.")] = "generated",
    input_: Annotated[Path | None, typer.Option("--input", help="The trace, .jsonl, .csv or either with .gz.")] = None,
    queries: Annotated[Path | None, typer.Option(help="csv with questions, such as Banking77's.")] = None,
    speed: Annotated[float, typer.Option(help="Arrivals so many times as dense as recorded.")] = 1.0,
    time_scale: Annotated[
        float | None, typer.Option(help="Shortens the life of texts; the configured one by default.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop after so many minutes; else at the end.")] = None,
    engines: Annotated[
        str | None, typer.Option(help="NAME=URL,NAME=URL: the replicas; those of the configured executor by default.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Pool of the replicas; the configured one by default.")] = None,
    model: Annotated[str, typer.Option(help="Model that the replicas serve.")] = "tiny",
    block_tokens: Annotated[int, typer.Option(help="Mooncake: tokens of a block; 512 is the trace's scale.")] = 512,
    routing: Annotated[Literal["session", "round_robin"], typer.Option(help="How replicas are chosen.")] = "session",
    concurrency: Annotated[int, typer.Option(help="Requests in flight, at most.")] = 128,
    seed: Annotated[int, typer.Option(help="Of tenants, questions and generated turns.")] = 0,
    to: Annotated[
        Path | None, typer.Option(help="Write the events to a file instead, as if each replica were a plain LRU cache.")
    ] = None,
    capacity_tokens: Annotated[int, typer.Option(help="--to: KV cache of such a replica.", min=1)] = 100_000,
    config: Annotated[Path | None, typer.Option("--config", help="stoker.toml to read.")] = None,
) -> None:
    """Send a workload's requests to engines at their times and publish what a gateway would to llm.requests."""
    from schemas import BrokenConfiguration
    from stoker.config import read
    from stoker.replay.run import Place
    from stoker.replay.run import replay as play
    from stoker.replay.sources import Workload

    if to is not None:
        workload = Workload(format_, input_, queries, speed, minutes, block_tokens, seed)
        typer.echo(f"{_write(workload, to, pool or 'gpu', model, capacity_tokens)} events written to {to}")
        return
    settings = read(config)
    if concurrency < 1:
        raise BrokenConfiguration("--concurrency must be at least 1")
    scale = settings.time_scale if time_scale is None else time_scale
    if scale <= 0:
        raise BrokenConfiguration("--time-scale must be positive")
    configured = {engine.name: engine.url for engine in settings.executor.engines}
    places = configured if engines is None else parse_engines(engines)
    if not places:
        raise BrokenConfiguration("no engines: name them with --engines NAME=URL, or in [executor] of stoker.toml")
    pools = settings.executor.engine_pools
    place = Place(
        kafka=settings.kafka,
        redis=settings.redis,
        scopes=settings.scopes.build(),
        pool=pool or (pools[0] if pools else "gpu"),
        model=model,
        engines=places,
        time_scale=scale,
        routing=routing,
        concurrency=concurrency,
    )
    turns = Workload(format_, input_, queries, speed, minutes, block_tokens, seed).turns()
    try:
        asyncio.run(play(place, turns, typer.echo))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _write(workload: Workload, to: Path, pool: str, model: str, capacity_tokens: int) -> int:
    """The workload's events as JSON lines, without an engine; returns how many."""
    from schemas import encode
    from stoker.replay.offline import OfflineConfig, offline

    turns = workload.turns()
    count = 0
    with to.open("wb") as file:
        for event in offline(turns, OfflineConfig(pool=pool, model=model, capacity_tokens=capacity_tokens)):
            file.write(encode(event) + b"\n")
            count += 1
    return count


def parse_engines(text: str) -> dict[str, str]:
    """NAME=URL pairs, joined by commas.

    Raises:
        BrokenConfiguration: a pair has no name or no http URL, or a name occurs twice.
    """
    from schemas import BrokenConfiguration

    found: dict[str, str] = {}
    for pair in text.split(","):
        name, equals, url = pair.strip().partition("=")
        if not equals or not name or not url.startswith(("http://", "https://")):
            raise BrokenConfiguration(f"--engines: {pair!r} is not NAME=URL, such as r0=http://127.0.0.1:8000")
        if name in found:
            raise BrokenConfiguration(f"--engines: {name} occurs twice")
        found[name] = url.rstrip("/")
    return found
