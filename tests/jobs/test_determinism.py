"""The whole chain of operators: the same input gives the same bytes, wherever operators are lost and rebuilt."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from connectors.encoders.fake import FakeEncoder
from connectors.redis.fake import MemoryBlobs, MemoryStore, MemoryVectors
from jobs import embedding
from jobs.operators import embed as embed_module
from jobs.settings import JobSettings, WarmupSettings
from schemas import (
    OutcomeReason,
    Policy,
    ReplicaSample,
    Residency,
    WarmupCommand,
    WarmupOutcome,
    decode,
    encode,
)
from schemas.canonical import outcome_id
from tests.jobs.chain import Chain
from tests.jobs.flink_stand_in import AtOnce
from tests.jobs.traffic import Mix

START_MS = 1_796_000_000_000
SECONDS, REQUESTS_PER_S = 16, 40
SEED = 1
REPLICAS = ("r0", "r1")
SETTINGS = JobSettings(
    time_scale=10.0, warmup=WarmupSettings(pattern_scopes=frozenset("*"), prompt_scopes=frozenset("*"))
)
ALL_WARM = encode(
    Policy(scope="*", section="experiment", writer="test", version=1, at_ms=START_MS, body={"hold_share": 0.2})
)


def recorded() -> list[tuple[int, bytes, int]]:
    """Requests, good and bad, and what replicas tell of themselves: arrival, record, time of the record."""
    mix, found = Mix(SEED), []
    for number in range(SECONDS * REQUESTS_PER_S):
        arrival = START_MS + number * 1_000 // REQUESTS_PER_S
        found.append((arrival, *mix.record(arrival)))
    for second in range(SECONDS):
        at_ms = START_MS + second * 1_000
        for name in REPLICAS:
            sample = ReplicaSample(
                replica=name, pool="gpu", incarnation="1", sampled_at_ms=at_ms, state="ready", block_tokens=16
            )
            found.append((at_ms, encode(sample), at_ms))
    return sorted(found)


def executors(command: WarmupCommand, now_ms: int) -> Iterator[tuple[int, bytes]]:
    """Answers that depend on the command alone: most is applied, some is lost again, some has no text."""
    luck = int(command.command_id[:4], 16)
    for number, replica in enumerate(command.replicas.names or (command.pool,)):
        at_ms = now_ms + 20 + luck % 200 + number
        status, reason = (
            ("held_out", OutcomeReason.HELD_OUT) if command.arm == "hold" else ("applied", OutcomeReason.DONE)
        )
        if command.arm == "warm" and luck % 7 == 0:
            status, reason = "skipped", OutcomeReason.CONTENT_MISSING
        yield at_ms, encode(
            WarmupOutcome(
                outcome_id=outcome_id(command.command_id, replica), command_id=command.command_id,
                target_key=command.target_key, scope=command.scope, pool=command.pool, replica=replica,
                unit=command.unit, arm=command.arm, status=status, reason=reason, finished_at_ms=at_ms,
                tokens_warmed=int(command.cost.tokens) if status == "applied" else 0,
            )
        )  # fmt: skip
        if status == "applied" and command.pool == "gpu" and luck % 5 == 0:
            lost_ms = at_ms + 3_000
            yield lost_ms, encode(
                Residency(
                    replica=replica, pool=command.pool, incarnation="1", scope=command.scope,
                    target_key=command.target_key, resident_tokens=0, seq=number + 1, observed_at_ms=lost_ms,
                    source="events",
                )
            )  # fmt: skip


def ran(monkeypatch: pytest.MonkeyPatch, disturb: Callable[[Chain], None] = lambda _: None) -> Chain:
    """One run on a Redis of its own."""
    store = MemoryStore()
    made = embedding.Embedder(SETTINGS.embedding(), FakeEncoder(), MemoryVectors(store), MemoryBlobs(store))
    monkeypatch.setattr(embed_module, "open_embedder", lambda *_: made)
    monkeypatch.setattr(embed_module, "ThreadPoolExecutor", AtOnce)
    chain = Chain(SETTINGS, executors, disturb)
    chain.policy(ALL_WARM)
    chain.run(recorded())
    return chain


def test_the_same_input_gives_the_same_bytes_with_operators_rebuilt_at_random_points(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steady = ran(monkeypatch)
    triggers = Counter(decode(value, WarmupCommand).reason.trigger for _, value in steady.commands)
    assert triggers.keys() >= {"hot_prefix", "lost_prefix", "second_sight"}
    assert min(triggers.values()) > 5, triggers

    again = ran(monkeypatch)
    assert again.commands == steady.commands
    assert again.rows == steady.rows

    luck, rebuilt = random.Random(SEED), Counter[int]()

    def disturb(chain: Chain) -> None:
        for number, stage in enumerate(chain.stages):
            if luck.random() < 0.01:
                stage.rebuild()
                rebuilt[number] += 1

    disturbed = ran(monkeypatch, disturb)
    assert len(rebuilt) == len(disturbed.stages)
    assert disturbed.commands == steady.commands
    assert disturbed.rows == steady.rows
