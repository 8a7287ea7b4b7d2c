"""Answers that an engine generates for a response cache: what is stored, what is not, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from connectors.engines.fake import FakeEngine
from connectors.redis.semantic import CacheName
from connectors.settings import SecretRef
from executor.apply.generated import GREEDY, GeneratedApplier
from executor.apply.response import ResponseApplier
from executor.apply.salts import SaltStore
from executor.ports import wall_clock_ms
from schemas import Prefix, Render, Replicas, Response
from schemas.canonical import h128, query_sha256, response_key

SCOPE, POOL = "acme", "gpu"
FINGERPRINT = "f" * 32
NAME = CacheName(SCOPE, "answers", FINGERPRINT)
VECTOR = np.asarray([1, 0, 0, 0], np.float32)
SYSTEM, QUERY = "You help people who have lost their card. " * 4, "where is my card?"


def asked(world: Any, query: str = QUERY, prompt: Prefix | None = None, vector: bool = True, **fields: Any) -> Any:
    """A command for an answer to be generated; all that it needs is stored."""
    if vector:
        world.vectors.put(SCOPE, FINGERPRINT, {query_sha256(QUERY): VECTOR}, 600_000)
    target = Response(
        cache=NAME.cache,
        fingerprint=FINGERPRINT,
        query_sha256=query_sha256(QUERY),
        prompt=prompt or world.prefix(SYSTEM, query),
        until_ms=wall_clock_ms() + 600_000,
        **{"model": "tiny", "reward": 0.9, **fields},
    )
    key = response_key(target.cache, target.query_sha256)
    return world.command(target, key, pool=POOL, replicas=Replicas(names=("r0",)))


async def ended(world: Any, command: Any) -> Any:
    world.send(command)
    return await world.outcome(command)


async def test_an_engines_answer_is_where_a_gateway_finds_it(world) -> None:
    await world.start()
    world.engines["r0"].answer = "In your letter box."
    command = asked(world)
    outcome = await ended(world, command)
    assert (outcome.status, outcome.reason, outcome.replica) == ("applied", "done", "r0")
    (request,) = world.engines["r0"].requests
    assert request.request_id == f"warmup-{command.command_id}"
    assert outcome.tokens_warmed == request.prompt_tokens + 4  # and the answer's words
    (found,) = await world.answers.nearest(NAME, VECTOR, 0.01)
    assert (found.prompt, found.response) == (QUERY, "In your letter box.")
    assert found.until_ms == command.target.until_ms
    (entry,) = await world.answers.find(NAME, query_sha256(QUERY))
    assert entry.metadata["command_id"] == command.command_id


@pytest.mark.parametrize("answer", ["one two three four", "", "  "])
async def test_what_was_cut_off_or_says_nothing_is_not_stored(world, answer: str) -> None:
    world.engines["r0"].answer = answer
    await world.start(answer_tokens=3)
    outcome = await ended(world, asked(world))
    assert (outcome.status, outcome.reason) == ("skipped", "answer_incomplete")
    assert await world.answers.find(NAME, query_sha256(QUERY)) == []


async def test_no_engine_is_asked_for_what_would_not_be_stored(world) -> None:
    await world.start()
    ids = world.prefix("1 2 3")
    blocks = Prefix(model=ids.model, segments=ids.segments, render=ids.render, segment_kind="token_block")
    wanted = {
        "below_reward_floor": asked(world, reward=0.4),
        "content_mismatch": asked(world, query="somebody else's query"),
        "content_missing": asked(world, prompt=world.prefix("not", "stored", store=False)),
    }
    for reason, command in wanted.items():
        outcome = await ended(world, command)
        assert (outcome.status, outcome.reason) == ("skipped", reason)
    for command in (
        asked(world, response_ref=h128("known")),
        asked(world, params_hash=h128("temperature=1")),
        asked(world, prompt=blocks),
        asked(world, prompt=world.prefix(SYSTEM, QUERY, adapter="german@7")),
        asked(world, prompt=world.prefix(SYSTEM, QUERY, render=Render("t", "", "of-nobody"))),
    ):
        outcome = await ended(world, command)
        assert (outcome.status, outcome.reason) == ("rejected", "unsupported")
    assert world.engines["r0"].requests == []


async def test_without_a_vector_nothing_is_generated_for_nobody_could_find_it(world) -> None:
    await world.start()
    outcome = await ended(world, asked(world, vector=False))
    assert (outcome.status, outcome.reason) == ("skipped", "vector_missing")
    assert world.engines["r0"].requests == []


async def test_it_is_paid_from_the_engines_quota(world) -> None:
    world.policy("budget", 1, prefill_share=0.0)
    await world.start()
    assert (await ended(world, asked(world))).reason == "quota"
    assert world.engines["r0"].requests == []


async def test_a_second_attempt_finds_what_the_first_has_stored(world, monkeypatch) -> None:
    monkeypatch.setenv("PEPPER", "pepper")
    ports = world.ports()
    responses = ResponseApplier(ports.blobs, ports.vectors, ports.answers, 0.5, wall_clock_ms)
    applier = GeneratedApplier(ports.blobs, SaltStore({SCOPE: {"s": SecretRef(env="PEPPER")}}), responses, 512)
    engine = world.engines["r0"]
    command = asked(world, prompt=world.prefix(SYSTEM, QUERY, render=Render("t", "", "s")))
    first = await applier.apply(command, engine, 5.0)
    again = await applier.apply(command, engine, 5.0)
    assert (first.status, again.status) == ("applied", "resident")
    (request,) = engine.requests
    assert request.salted


async def test_an_answer_that_was_revoked_meanwhile_stays_out(world) -> None:
    await world.start()
    command = asked(world)
    await world.answers.revoke(NAME, query_sha256(QUERY), command.issued_at_ms + 1, None, VECTOR)
    assert (await ended(world, command)).reason == "revoked"


def test_greedy_is_named_as_a_gateway_would_name_it() -> None:
    assert h128("temperature=0") == GREEDY


async def test_an_answer_under_an_adapter_does_not_load_it(world) -> None:
    world.engines["r0"] = engine = FakeEngine(resolves=True)
    await world.start()
    prompt = world.prefix(SYSTEM, QUERY, adapter="german@7")
    outcome = await ended(world, asked(world, prompt=prompt, model="german@7"))
    assert (outcome.status, outcome.reason) == ("skipped", "needed_missing")
    await engine.load_adapter("german@7", "/adapters/german")
    outcome = await ended(world, asked(world, prompt=prompt, model="german@7"))
    assert (outcome.status, outcome.reason) == ("applied", "done")
