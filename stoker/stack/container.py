"""Entry of the Flink image: the same configuration as on the embedded stack, with a container's hosts.

    python -m stoker.stack.container jobmanager SCRIPT [ARGUMENT ...]
    python -m stoker.stack.container taskmanager

Both become the Flink process. A JobManager that is started again goes on from the newest retained checkpoint, or from
STOKER_SAVEPOINT when there is none. STOKER_STATE is the folder that JobManager and TaskManagers share (`/state`),
STOKER_JOBMANAGER the JobManager's host name, STOKER_PARALLELISM the number of TaskManagers.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from schemas.errors import BrokenConfiguration, StokerError
from stoker.stack.flink_config import FlinkConfig, FlinkFolder

REST_PORT = 8081
RPC_PORT = 6123
METRICS_PORT = 9249


def command(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Program with arguments, and its environment; writes the configuration.

    Raises:
        BrokenConfiguration: another role, or a JobManager without a script.
    """
    role = arguments[0] if arguments else ""
    if role not in ("jobmanager", "taskmanager") or (role == "jobmanager" and len(arguments) < 2):
        raise BrokenConfiguration("container: give `jobmanager SCRIPT [ARGUMENT ...]` or `taskmanager`")
    config = FlinkConfig(
        metrics_ports=str(METRICS_PORT),
        jobmanager_host=environ.get("STOKER_JOBMANAGER", "jobmanager"),
        bind_host="0.0.0.0",
    )
    shared = Path(environ.get("STOKER_STATE", "/state"))
    parallelism = int(environ.get("STOKER_PARALLELISM", "1"))
    folder = FlinkFolder(shared, local=Path(environ.get("STOKER_LOCAL", "/tmp/flink")))
    folder.prepare(config, REST_PORT, RPC_PORT, parallelism)
    if role == "taskmanager":
        return folder.taskmanager_command(config), folder.environment()
    newest = folder.newest_checkpoint()
    restored = str(newest) if newest is not None else environ.get("STOKER_SAVEPOINT", "")
    return (
        folder.jobmanager_command(config, uuid.uuid4().hex, restored, arguments[1], arguments[2:]),
        folder.environment(),
    )


def main() -> None:
    """Become the Flink process."""
    try:
        program, added = command(sys.argv[1:], os.environ)
    except StokerError as error:
        print(f"container: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    os.execvpe(program[0], program, {**os.environ, **added})


if __name__ == "__main__":
    main()
