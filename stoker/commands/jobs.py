"""`stoker submit JOB`, `stoker jobs`, `stoker stop JOB`: Flink jobs of the embedded stack, in application mode."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from schemas.errors import BrokenConfiguration, TransientFault
from stoker.stack.paths import DEFAULT_STATE, PROJECT

JOBS = {"warmup": Path("jobs/warmup.py")}
"""Jobs by name, and their script in the checkout."""

State = Annotated[Path, typer.Option("--state", help="Folder of the stack: data, logs, process records.")]


def register(app: typer.Typer) -> None:
    """Adds `submit`, `jobs` and `stop`."""
    app.command("submit")(submit)
    app.command("jobs")(jobs)
    app.command("stop")(stop)


def submit(
    job: Annotated[str, typer.Argument(help=", ".join(JOBS))],
    parallelism: Annotated[int, typer.Option(min=1, max=720, help="Subtasks of each operator.")] = 1,
    from_savepoint: Annotated[
        Path | None, typer.Option(help="Savepoint or retained checkpoint to start from; of any parallelism.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="stoker.toml to read.")] = None,
    state: State = DEFAULT_STATE,
) -> None:
    """Start a job on a Flink cluster of its own and wait until every task runs."""
    from jobs.settings import load_settings
    from stoker.stack.flink import start_application
    from stoker.stack.flink_config import FlinkConfig
    from stoker.stack.paths import StateFolder

    if job not in JOBS:
        raise BrokenConfiguration(f"no job {job}; there is {', '.join(JOBS)}")
    stack_file = state / "stoker.toml"
    if config is None and not Path("stoker.toml").exists() and stack_file.exists():
        config = stack_file
    settings = load_settings(config)
    folder = StateFolder.at(state)
    # What the job runs with stays beside its checkpoints: a recovery reads it again, whatever the environment is then.
    resolved = folder.data(f"flink/{job}") / "settings.json"
    resolved.write_text(settings.to_json(), encoding="utf-8")
    app = start_application(
        job,
        PROJECT / JOBS[job],
        ["--config", str(resolved)],
        state=folder,
        parallelism=parallelism,
        savepoint=from_savepoint,
        config=FlinkConfig.of_job(settings.warmup),
    )
    typer.echo(f"{job} runs with parallelism {parallelism}: {app.rest_url}")


def jobs(state: State = DEFAULT_STATE) -> None:
    """Show every job that was submitted here, and how it is."""
    from rich.console import Console
    from rich.table import Table

    from stoker.stack.flink import applications
    from stoker.stack.paths import StateFolder

    table = Table(box=None)
    for column in ("job", "state", "tasks", "restarts", "checkpoints", "failed", "web page", "newest failure"):
        table.add_column(column)
    known = applications(StateFolder.at(state)) if state.exists() else []
    for app in known:
        if not app.running:
            table.add_row(app.name, "not running")
            continue
        try:
            health = app.health()
        except TransientFault:
            table.add_row(app.name, "starting", "", "", "", "", app.rest_url)
            continue
        table.add_row(
            app.name,
            health.state,
            f"{health.tasks_running}/{health.tasks_total}",
            str(health.restarts),
            str(health.checkpoints_completed),
            str(health.checkpoints_failed),
            app.rest_url,
            health.newest_failure[:80],
        )
    if known:
        Console().print(table)
    else:
        typer.echo("no job was submitted here: `stoker submit warmup`")


def stop(
    job: Annotated[str, typer.Argument(help="As `stoker jobs` names it.")],
    savepoint: Annotated[bool, typer.Option("--savepoint", help="Take a savepoint first and print its path.")] = False,
    state: State = DEFAULT_STATE,
) -> None:
    """Stop a job. Without --savepoint only its retained checkpoints stay."""
    from stoker.stack.flink import load_application
    from stoker.stack.paths import StateFolder

    app = load_application(job, StateFolder.at(state))
    if not app.running:
        app.stop()  # TaskManagers that survived their JobManager
        typer.echo(f"{job} did not run")
        return
    if savepoint:
        typer.echo(str(app.stop_with_savepoint()))
        return
    app.stop()
    newest = app.newest_checkpoint()
    typer.echo(f"{job} is stopped" + (f"; its newest checkpoint: {newest}" if newest else ""))
