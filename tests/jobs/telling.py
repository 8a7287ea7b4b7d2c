"""What replicas, executors and those who announce changes tell the running job."""

from __future__ import annotations

from schemas import Announcement, OutcomeReason, ReplicaSample, Residency, WarmupCommand, WarmupOutcome, encode
from schemas.announcement import announcement_id
from schemas.canonical import outcome_id
from schemas.replica_sample import ResidentAdapter
from schemas.topics import ANNOUNCEMENTS, OUTCOMES, RESIDENCY, TELEMETRY
from tests.jobs.conftest import WATCHED
from tests.jobs.deployment import Deployment, now_ms


def replica_of(pool: str) -> str:
    """The one replica of a pool."""
    return f"{pool}-r0"


def sample(deployment: Deployment, pool: str, *adapters: ResidentAdapter) -> None:
    """What the replica of a pool tells of itself every second."""
    told = ReplicaSample(
        replica=replica_of(pool), pool=pool, incarnation="1", sampled_at_ms=now_ms(), state="ready", adapters=adapters
    )
    deployment.send(encode(told), TELEMETRY, key=told.replica.encode())


def announce(deployment: Deployment, pool: str, at_ms: int, **fields: object) -> None:
    """A change of the watched tenant; told again with another time it is another one."""
    message = Announcement(
        announcement_id=announcement_id(WATCHED, pool, str(fields["kind"]), str(fields["name"]), "2", at_ms),
        scope=WATCHED, pool=pool, announced_at_ms=now_ms(), at_ms=at_ms, version="2", **fields,
    )  # fmt: skip
    deployment.send(encode(message), ANNOUNCEMENTS, key=WATCHED.encode())
    deployment.flush()


def applied(deployment: Deployment, command: WarmupCommand) -> None:
    """What an executor says when it has done a command on its one replica."""
    replica = command.replicas.names[0]
    outcome = WarmupOutcome(
        outcome_id=outcome_id(command.command_id, replica), command_id=command.command_id,
        target_key=command.target_key, scope=command.scope, pool=command.pool, replica=replica, unit=command.unit,
        status="applied", reason=OutcomeReason.DONE, finished_at_ms=now_ms(), tokens_warmed=int(command.cost.tokens),
    )  # fmt: skip
    deployment.send(encode(outcome), OUTCOMES, key=f"{command.pool}|{command.target_key}".encode())


def lost(deployment: Deployment, command: WarmupCommand) -> None:
    """What the lease-holder of its replica says when nothing of a command's target is left there."""
    residency = Residency(
        replica=command.replicas.names[0], pool=command.pool, incarnation="1", scope=command.scope,
        target_key=command.target_key, resident_tokens=0, seq=now_ms(), observed_at_ms=now_ms(), source="events",
    )  # fmt: skip
    deployment.send(encode(residency), RESIDENCY, key=f"{residency.replica}|{command.target_key}".encode())
