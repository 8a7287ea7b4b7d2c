"""`stoker stack up|down|status|logs|env`: the embedded stack, without Docker and without root."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from schemas.errors import BrokenConfiguration, StackFault
from stoker.stack.paths import DEFAULT_STATE

INTERRUPTED = 130

State = Annotated[Path, typer.Option("--state", help="Folder of the stack: data, logs, process records.")]

group = typer.Typer(help="Kafka, Redis, engine simulators and Flink as plain processes.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add `stoker stack`."""
    app.add_typer(group, name="stack")


def interruptible(work: Callable[[], None]) -> None:
    """Run `work`; Ctrl-C ends with 130 instead of click's 1, after `work` has tidied up."""
    try:
        work()
    except KeyboardInterrupt:
        typer.echo("interrupted; what was started has been stopped", err=True)
        raise typer.Exit(INTERRUPTED) from None


@group.command()
def up(
    state: State = DEFAULT_STATE,
    engines: Annotated[int, typer.Option(min=0, max=64, help="Simulated replicas r0, r1, ...")] = 2,
    kafka_port: Annotated[int, typer.Option(min=1, max=65_535)] = 9092,
    kafka_controller_port: Annotated[int, typer.Option(min=1, max=65_535)] = 9093,
    redis_port: Annotated[int, typer.Option(min=1, max=65_535)] = 6379,
    engine_port: Annotated[int, typer.Option(min=1, max=65_000, help="Of r0; r1 has the next one.")] = 8100,
    events_port: Annotated[int, typer.Option(min=1, max=65_000, help="KV events of r0; r1 two further.")] = 5600,
    engine_flags: Annotated[str, typer.Option(help="Further flags of the simulators, quoted together.")] = "",
    topic_prefix: Annotated[str, typer.Option(help="Put before every topic, such as `staging.`")] = "",
    time_scale: Annotated[
        float, typer.Option(min=1, max=1_000, help="How much faster than the calendar what runs on it will be.")
    ] = 1.0,
    flink_session: Annotated[bool, typer.Option(help="Also a Flink session cluster for plain `flink run`.")] = False,
    flink_slots: Annotated[int, typer.Option(min=1, max=64, help="TaskManagers of the session cluster.")] = 2,
    flink_port: Annotated[int, typer.Option(min=1, max=65_535, help="REST of the session cluster.")] = 8081,
    flink_rpc_port: Annotated[int, typer.Option(min=1, max=65_535)] = 6123,
) -> None:
    """Start Kafka with all topics, Redis and the simulators. Twice is harmless."""
    from stoker.stack.engines import EngineConfig
    from stoker.stack.flink_config import FlinkConfig
    from stoker.stack.flink_session import SessionConfig
    from stoker.stack.kafka import KafkaConfig
    from stoker.stack.redis import RedisConfig
    from stoker.stack.stack import Stack, StackConfig

    config = StackConfig(
        kafka=KafkaConfig(kafka_port, kafka_controller_port),
        redis=RedisConfig(redis_port),
        engines=tuple(
            EngineConfig(f"r{i}", engine_port + i, events_port + 2 * i, flags=tuple(shlex.split(engine_flags)))
            for i in range(engines)
        ),
        session=SessionConfig(flink_slots, FlinkConfig(flink_port, flink_rpc_port)) if flink_session else None,
        topic_prefix=topic_prefix,
        time_scale=time_scale,
    )
    stack = Stack(state, config)
    interruptible(stack.up)
    typer.echo(f"the stack is up; settings for the other commands: {stack.settings_file}")
    _print_status(stack.status())


@group.command()
def down(
    state: State = DEFAULT_STATE,
    data: Annotated[
        bool, typer.Option("--data", help="Also remove topics, Redis's data, checkpoints and logs.")
    ] = False,
) -> None:
    """Stop everything that was started in the folder, Flink jobs and executors too."""
    from stoker.stack.stack import Stack

    if not state.exists():
        typer.echo(f"nothing to stop: {state} does not exist")
        return
    interruptible(lambda: Stack(state).down(data=data))
    typer.echo("the stack is down" + (" and its data removed" if data else f"; its data stays in {state}"))


@group.command()
def status(state: State = DEFAULT_STATE) -> None:
    """Show every part; exit 3 when one does not answer."""
    from stoker.stack.stack import Stack

    if not (state / "stack.json").exists():
        raise StackFault(f"no stack was ever started in {state}: `stoker stack up`")
    entries = Stack(state).status()
    _print_status(entries)
    if not all(entry.ready for entry in entries):
        raise typer.Exit(StackFault.exit_code)


@group.command()
def logs(
    service: Annotated[str, typer.Argument(help="A part as `status` names it; all of them when left out.")] = "",
    state: State = DEFAULT_STATE,
    lines: Annotated[int, typer.Option(min=1, help="How many lines from the end.")] = 40,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
) -> None:
    """Print the end of the logs."""
    found = sorted((state / "logs").glob("*.log"))
    chosen = [path for path in found if service in ("", path.stem)]
    if not chosen:
        known = ", ".join(path.stem for path in found) or "none"
        raise BrokenConfiguration(f"no log of {service or 'anything'} in {state}; known: {known}")
    offsets = {}
    for path in chosen:
        text = path.read_bytes()
        offsets[path] = len(text)
        for line in text.decode(errors="replace").splitlines()[-lines:]:
            typer.echo(f"{path.stem}: {line}" if len(chosen) > 1 else line)
    try:
        while follow:
            for path in chosen:
                with path.open("rb") as file:
                    file.seek(offsets[path])
                    new = file.read()
                offsets[path] += len(new)
                sys.stdout.write(new.decode(errors="replace"))
            sys.stdout.flush()
            time.sleep(0.3)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


@group.command()
def env(state: State = DEFAULT_STATE) -> None:
    """Print the endpoints, and what plain `flink run` needs, for `eval "$(stoker stack env)"`."""
    from stoker.stack.stack import Stack

    stack = Stack(state)
    variables = stack.environment()
    if stack.session is not None:
        variables |= stack.session.environment
    for name, value in variables.items():
        typer.echo(f"export {name}={shlex.quote(value)}")


def _print_status(entries: list) -> None:  # type: ignore[type-arg]
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    for column in ("part", "state", "pid", "endpoint"):
        table.add_column(column)
    for entry in entries:
        told = "ready" if entry.ready else "stopped" if entry.pid is None else "not ready"
        table.add_row(entry.name, told, str(entry.pid or ""), entry.endpoint)
    Console().print(table)
