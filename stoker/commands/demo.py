"""`stoker demo`: the whole path on this machine for a few minutes, and what it was worth."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, cast

import typer

if TYPE_CHECKING:
    from stoker.demo.config import Mode

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
    html: Annotated[Path | None, typer.Option("--html", help="Write a summary with plots there, one file.")] = None,
    mode: Annotated[
        str, typer.Option(help="full; off: every command a shadow; bad: warms without measure, to show harm.")
    ] = "full",
    lru_minutes: Annotated[
        float | None, typer.Option(help="Minutes played before without Stoker; half of --minutes, at most 2.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the workload; drawn at run time and told by default.")] = None,
) -> None:
    """Bring up Kafka, Redis, Flink, two simulated engines and an executor; play a workload; show what warming gained.

    Everything runs on free ports in a folder of its own and is gone afterwards. Ends with 0; 1 if events are not all
    accounted for; 3, naming the log, if a part died.
    """
    import secrets

    from rich.console import Console

    from schemas import BrokenConfiguration, StackFault
    from stoker.demo.config import DemoConfig
    from stoker.demo.drive import drive, drive_alone
    from stoker.demo.page import page
    from stoker.demo.profile import profile_of
    from stoker.demo.session import Session, recover
    from stoker.demo.show import Screen, summary

    for option, file in (("--json", json_), ("--html", html)):
        if file is not None and not file.absolute().parent.is_dir():
            raise BrokenConfiguration(f"{option} {file}: its folder does not exist")
    if mode not in ("full", "off", "bad"):
        raise BrokenConfiguration(f"--mode {mode}: it is one of full, off, bad")
    chosen = secrets.randbelow(1_000_000) if seed is None else seed
    profile = profile_of(input_, chosen)
    alone = min(2.0, minutes / 2) if lru_minutes is None else lru_minutes
    config = DemoConfig(profile, minutes, input_, lru_minutes=alone, mode=cast("Mode", mode), seed=chosen)
    terminal = Console()
    screen = Screen(terminal if terminal.is_terminal else Console(width=PIPE_COLUMNS), config)
    recover(config.root)
    signal.signal(signal.SIGTERM, _as_interrupt)
    session = Session(config)
    keep = False
    try:
        screen.say("starting Kafka, Redis and the engine simulators")
        session.start_stack()
        if alone:
            screen.say(f"playing the first {alone:g} minutes without Stoker: plain LRU only; then caches are emptied")
        before = asyncio.run(drive_alone(session, screen))
        for part in session.start():
            screen.say(f"starting {part}")
        screen.say(f"playing {profile.title}")
        figures = asyncio.run(drive(session, screen, before))
        if json_ is not None:
            json_.write_text(json.dumps(figures.as_json(chosen), indent=1) + "\n", encoding="utf-8")
        screen.console.print(summary(figures, config))
        if html is not None:
            html.write_text(page(figures, config), encoding="utf-8")
            screen.say(f"a page with plots is in {html}")
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
