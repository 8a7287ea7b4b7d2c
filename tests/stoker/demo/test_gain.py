"""Help and harm by tokens: the demo's own workload on the simulator's pool, with nothing, sense or junk warmed."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Iterable
from dataclasses import replace

import pytest

from schemas import Render
from stoker.demo.effect import Shadowed, Touch, shadowed
from stoker.demo.gain import EXACT, Gain, gain
from stoker.demo.profile import ANSWER_TOKENS, BLOCK_TOKENS, Profile, generated_profile
from stoker.replay.render import chain
from stoker.simulator.blocks import BlockPool, Held

MINUTES = 1.0
JUNK_TOKENS = 1_600


class Replica:
    """A simulated pool and the requests that it has not finished."""

    def __init__(self, profile: Profile) -> None:
        self.pool = BlockPool(profile.num_blocks, BLOCK_TOKENS)
        self._running: list[tuple[float, int, Held, int]] = []
        self._count = 0

    def ask(self, hashes: list[bytes], tokens: int, answer: int, at_ms: float, profile: Profile) -> int:
        """Tokens found by a prompt that comes now and holds its blocks while it is computed."""
        while self._running and self._running[0][0] <= at_ms:
            _, _, held, stored = heapq.heappop(self._running)
            self.pool.store(held, stored)
            self.pool.release(held)
        taken = self.pool.admit(hashes, tokens, tokens + answer)
        assert taken is not None
        found = taken.hit_blocks * BLOCK_TOKENS
        end_ms = at_ms + (tokens - found) * profile.prefill_ms_per_token + answer * profile.decode_ms_per_token
        self._count += 1
        heapq.heappush(self._running, (end_ms, self._count, taken, tokens))
        return found


def blocks(segments: Iterable[tuple[str, int]]) -> list[bytes]:
    """Names of a prompt's full blocks: where one ends tells all that stands before."""
    found: list[bytes] = []
    end = 0
    for name, tokens in segments:
        end += tokens
        found += [f"{name}/{index}".encode() for index in range(len(found), end // BLOCK_TOKENS)]
    return found


def played(seed: int, junk_per_s: float = 0.0, foreseen: bool = False, slower: float = 1.0) -> list[Shadowed]:
    """A minute of the demo's workload.

    Args:
        junk_per_s: warm-ups of what nobody asks for, on each replica.
        foreseen: whether every prefix family that comes back is warmed right before it does, where it does.
        slower: how many times longer everything takes than the model does.
    """
    profile = generated_profile(seed)
    prefill_ms, decode_ms = slower * profile.prefill_ms_per_token, slower * profile.decode_ms_per_token
    profile = replace(profile, prefill_ms_per_token=prefill_ms, decode_ms_per_token=decode_ms)
    replicas = [Replica(profile) for _ in range(profile.replicas)]
    asked: set[tuple[tuple[str, int], ...]] = set()
    touches, junk, next_ms = [], 0, 0.0
    for turn in profile.turns(MINUTES):
        tokens = [max(1, len(piece.text) // 4) for piece in turn.pieces]
        segments = [(one.hash, one.tokens) for one in chain(turn.pieces, tokens, "tiny", Render(), turn.adapter)]
        while next_ms <= turn.at_ms:
            while junk < junk_per_s * next_ms / 1000:
                junk += 1
                for replica in replicas:
                    replica.ask(blocks([(f"junk-{junk}", JUNK_TOKENS)]), JUNK_TOKENS, 1, next_ms, profile)
            next_ms += 500
        number = zlib.crc32(turn.session.encode()) % len(replicas)
        whole = sum(tokens)
        family = tuple(segments[:2])
        if foreseen and family in asked:
            size = sum(tokens[:2])
            replicas[number].ask(blocks(family), size, 1, turn.at_ms - size * profile.prefill_ms_per_token - 2, profile)
        asked.add(family)
        found = replicas[number].ask(blocks(segments), whole, ANSWER_TOKENS, turn.at_ms, profile)
        touches.append(
            Touch(
                turn.at_ms,
                turn.tenant,
                f"r{number}",
                tuple(name for name, _ in segments),
                tuple(tokens),
                (whole - found) * prefill_ms,
                found,
                whole,
                answer_tokens=ANSWER_TOKENS,
            )
        )
    return shadowed(touches, profile.capacity_tokens, block_tokens=BLOCK_TOKENS)


def judged(touches: list[Shadowed]) -> Gain:
    found = gain(touches, 1)
    assert found is not None
    assert found.low <= found.value <= found.high
    return found


@pytest.mark.parametrize("slower", [1.0, 5.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_with_nothing_warmed_nothing_is_gained_or_lost_however_slow_the_machine_is(seed: int, slower: float) -> None:
    found = judged(played(seed, slower=slower))
    assert found.verdict == "none"
    assert abs(found.value) < EXACT


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_junk_that_is_warmed_does_harm_to_all(seed: int) -> None:
    assert judged(played(seed, junk_per_s=1.2)).verdict == "harm"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_comes_back_and_is_warmed_in_time_helps_all(seed: int) -> None:
    assert judged(played(seed, foreseen=True)).verdict == "help"


def test_too_few_requests_or_families_have_no_verdict() -> None:
    one = Touch(0, "s", "r", ("a", "b"), (10, 10), 1.0, 5, 20)
    assert gain([Shadowed(one, 0)] * 100, 1) is None, "a single family"
    assert gain([], 1) is None


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (Gain(-0.025, -0.043, -0.007), "harm"),
        (Gain(-0.006, -0.010, -0.002), "none"),
        (Gain(-0.030, -0.070, 0.001), "none"),
        (Gain(0.006, 0.002, 0.010), "none"),
        (Gain(0.020, 0.005, 0.035), "help"),
    ],
)
def test_what_the_shadow_cannot_tell_and_what_may_be_chance_has_no_verdict(found: Gain, verdict: str) -> None:
    assert found.verdict == verdict
