"""Hot prefixes through the whole job: the half-life follows the traffic, and what is there already is not warmed."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from analytics.policy import PolicyBook
from jobs.settings import JobSettings, WarmupSettings
from schemas import (
    OutcomeReason,
    PrefixState,
    Render,
    ReplicaSample,
    RequestEvent,
    Residency,
    Segment,
    WarmupCommand,
    WarmupOutcome,
    decode,
    encode,
)
from schemas.canonical import outcome_id, prefix_key
from schemas.warmup_outcome import Status
from stoker.local_job import LocalJob

START_MS = 1_796_000_000_000
SEGMENT_TOKENS = 400
ROUNDS = 20
"""How often each prefix is asked for: enough for the half-life to settle."""


def chained(*names: str) -> tuple[Segment, ...]:
    """Segments whose hashes stand for all that leads to them."""
    return tuple(
        Segment(hash=hashlib.md5(repr(names[: end + 1]).encode()).hexdigest(), tokens=SEGMENT_TOKENS, role="system")
        for end in range(len(names))
    )


def request(number: int, family: str, at_ms: int) -> bytes:
    """A request for a family's prefix with a question of its own."""
    segments = (*chained("service", family), *chained("question", str(number))[1:])
    return encode(
        RequestEvent(
            event_id=f"e{number}",
            request_id=f"r{number}",
            phase="started",
            occurred_at_ms=at_ms,
            tenant="acme",
            pool="gpu",
            model="m",
            query=f"question {number}",
            segments=segments,
            input_tokens=sum(segment.tokens for segment in segments),
            render=Render(template_sha="0" * 32, tools_sha="1" * 32),
        )
    )


def sample(at_ms: int) -> bytes:
    return encode(ReplicaSample(replica="r0", pool="gpu", incarnation="1", sampled_at_ms=at_ms, state="ready"))


def states(job: LocalJob) -> list[PrefixState]:
    """What the job told of its half-life."""
    kinds = [(msgspec.json.decode(insight)["schema"], insight) for insight in job.topics.insights]
    return [decode(insight, PrefixState) for kind, insight in kinds if kind == "prefix_state/1"]


def played(gap_s: int, rule: str) -> list[PrefixState]:
    """A job over traffic in which each of sixty prefixes comes back after so many seconds."""
    warmup = WarmupSettings.model_validate({"prefix_rule": rule})
    job, families = LocalJob(JobSettings(warmup=warmup), PolicyBook()), 60
    for number in range(ROUNDS * families):
        at_ms = START_MS + number * gap_s * 1000 // families
        job.on_record(request(number, f"family {number % families}", at_ms), at_ms)
    return states(job)


@pytest.mark.slow
def test_the_half_life_follows_the_reuse_gaps_of_the_traffic_and_is_told() -> None:
    told = {gap_s: played(gap_s, "tuned")[-1] for gap_s in (200, 600)}
    for gap_s, state in told.items():
        assert state.median_gap_ms is not None
        assert state.factor is not None
        assert abs(state.median_gap_ms / (gap_s * 1000) - 1) < 0.2
        assert state.factor in (2.0, 2.5, 3.0)
        assert abs(state.half_life_ms / (state.factor * state.median_gap_ms) - 1) < 1e-6
    assert told[600].half_life_ms > 2 * told[200].half_life_ms
    assert (told[600].scope, told[600].pool, told[600].rule) == ("default", "gpu", "tuned")
    assert told[600].nodes > 60


def test_under_the_rule_of_the_specification_nothing_changes() -> None:
    assert played(200, "spec") == []


def test_what_a_replica_is_known_to_hold_is_not_sent_and_what_it_lacks_is() -> None:
    job = LocalJob(JobSettings(), PolicyBook())
    held = chained("service", "held")
    for number in range(60):
        at_ms = START_MS + number * 1_000
        job.on_record(sample(at_ms), at_ms)
        job.on_record(
            encode(
                Residency(
                    replica="r0",
                    pool="gpu",
                    incarnation="1",
                    scope="default",
                    target_key=prefix_key(held[-1].hash),
                    resident_tokens=2 * SEGMENT_TOKENS,
                    seq=number + 1,
                    observed_at_ms=at_ms,
                    source="events",
                )
            ),
            at_ms,
        )
        job.on_record(request(number, ("held", "absent")[number % 2], at_ms), at_ms)
    job.advance(START_MS + 66_000)
    sent = {decode(command, WarmupCommand).target_key for command in job.topics.commands}
    assert prefix_key(chained("service", "absent")[-1].hash) in sent
    assert prefix_key(held[-1].hash) not in sent


@pytest.mark.parametrize(("status", "reason"), [("resident", "already_resident"), ("applied", "done")])
def test_what_warm_ups_find_tells_how_long_replicas_keep_things(status: Status, reason: str) -> None:
    """Each prefix comes back after 200 s; where all are there still, replicas keep for longer than the policy says."""
    job, taken = LocalJob(JobSettings(), PolicyBook()), 0
    for number in range(240):
        at_ms = START_MS + number * 5_000
        job.on_record(sample(at_ms), at_ms)
        job.on_record(request(number, f"family {number % 40}", at_ms), at_ms)
        for record in job.topics.commands[taken:]:
            command = decode(record, WarmupCommand)
            outcome = WarmupOutcome(
                outcome_id=outcome_id(command.command_id, "r0"),
                command_id=command.command_id,
                target_key=command.target_key,
                scope=command.scope,
                pool=command.pool,
                replica="r0",
                unit=command.unit,
                status=status,
                reason=OutcomeReason(reason),
                finished_at_ms=at_ms,
            )
            job.on_record(encode(outcome), at_ms)
        taken = len(job.topics.commands)
    evidence = [decode(record, WarmupCommand).reason.evidence for record in job.topics.commands]
    first_ms, last_ms = evidence[0]["stay_ms"], evidence[-1]["stay_ms"]
    assert first_ms == 120_000
    assert last_ms > 1.2 * first_ms if status == "resident" else last_ms < first_ms / 1.2
