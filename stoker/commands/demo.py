"""`stoker demo`: the whole path on this machine for a few minutes, and what it was worth."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

PIPE_COLUMNS = 120
"""Width where there is no terminal to ask."""


def register(app: typer.Typer) -> None:
    """Adds the command `demo`."""
    app.command("demo")(demo)


def demo(
    minutes: Annotated[float, typer.Option(help="Minutes of traffic.")] = 2.0,
    input_: Annotated[
        Path | None, typer.Option("--input", help="Folder with traces/ and text/: plays Mooncake's conversation trace.")
    ] = None,
    json_: Annotated[Path | None, typer.Option("--json", help="Write the figures there.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the workload; drawn at run time and told by default.")] = None,
) -> None:
    """Bring up Kafka, Redis, Flink, two simulated engines and an executor; play a workload; show what warming gained.

    Everything runs on free ports in a folder of its own and is gone afterwards. Ends with 0; 1 if events are not all
    accounted for; 3, naming the log, if a part died.
    """
    import secrets

    from rich.console import Console

    from schemas import BrokenConfiguration, StackFault
    from stoker.demo.drive import drive
    from stoker.demo.profile import profile_of
    from stoker.demo.session import DemoConfig, Session, recover
    from stoker.demo.show import Screen, summary

    if json_ is not None and not json_.absolute().parent.is_dir():
        raise BrokenConfiguration(f"--json {json_}: its folder does not exist")
    chosen = secrets.randbelow(1_000_000) if seed is None else seed
    profile = profile_of(input_, chosen)
    config = DemoConfig(profile, minutes, input_, seed=chosen)
    terminal = Console()
    screen = Screen(terminal if terminal.is_terminal else Console(width=PIPE_COLUMNS), config)
    recover(config.root)
    signal.signal(signal.SIGTERM, _as_interrupt)
    session = Session(config)
    keep = False
    try:
        for part in session.start():
            screen.say(f"starting {part}")
        screen.say(f"playing {profile.title}")
        figures = asyncio.run(drive(session, screen))
        if json_ is not None:
            json_.write_text(json.dumps(figures.as_json(chosen), indent=1) + "\n", encoding="utf-8")
        screen.console.print(summary(figures, config))
        if figures.unaccounted:
            keep = True
            screen.say(f"{figures.unaccounted} records are not accounted for; logs are in {session.state.logs}")
            raise typer.Exit(1)
    except KeyboardInterrupt:
        screen.say("interrupted; ending everything that was started")
        raise typer.Exit(130) from None
    except StackFault as fault:
        keep = True
        raise StackFault(f"{fault}\nlogs of all parts are in {session.state.logs}") from fault
    finally:
        session.end(keep)


def _as_interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
