"""The block pool against a brute-force oracle, and its laws one by one."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.simulator.blocks import BlockPool, Held
from stoker.simulator.chain import block_hashes, chain_root

BLOCK = 2


def packed(ids: list[int]) -> bytes:
    return b"".join(one.to_bytes(4, "little") for one in ids)


def hashes_of(ids: list[int], adapter: str | None = None, salt: str | None = None) -> list[bytes]:
    return block_hashes(packed(ids), BLOCK, chain_root(adapter, salt))


@dataclass
class OracleRequest:
    prefixes: list[tuple[int, ...]]
    owns: list[tuple[int, ...]]
    private: int


@dataclass
class Oracle:
    """Blocks named by the whole prefix they end; every rule written down without any data structure to speak of."""

    usable: int
    running: list[OracleRequest] = field(default_factory=list)
    idle: list[tuple[int, ...]] = field(default_factory=list)

    def held_by_anyone(self) -> set[tuple[int, ...]]:
        return {prefix for request in self.running for prefix in request.owns}

    def free(self) -> int:
        return self.usable - len(self.held_by_anyone()) - sum(request.private for request in self.running)

    def admit(self, ids: list[int], total: int) -> tuple[OracleRequest, int] | None:
        prefixes = [tuple(ids[:end]) for end in range(BLOCK, len(ids) + 1, BLOCK)]
        hits = 0
        for prefix in prefixes:
            if len(prefix) > len(ids) - 1 or prefix not in self.held_by_anyone() | set(self.idle):
                break
            hits += 1
        need = -(-total // BLOCK) - hits
        kept = [prefix for prefix in self.idle if prefix not in prefixes[:hits]]
        blank = self.free() - len(self.idle)
        if need > blank + len(kept):
            return None
        self.idle = kept[max(0, need - blank) :]
        request = OracleRequest(prefixes, prefixes[:hits], need)
        self.running.append(request)
        return request, hits

    def store(self, request: OracleRequest) -> int:
        created = 0
        for prefix in request.prefixes:
            if prefix not in self.held_by_anyone() and prefix not in self.idle:
                request.owns.append(prefix)
                request.private -= 1
                created += 1
        return created

    def release(self, request: OracleRequest) -> None:
        self.running.remove(request)
        for prefix in sorted(request.owns, key=len, reverse=True):
            if prefix not in self.held_by_anyone():
                self.idle.append(prefix)


Step = tuple[str, list[int], int]
prompts = st.lists(st.integers(0, 1), min_size=1, max_size=9)
steps = st.lists(st.tuples(st.sampled_from(("start", "finish")), prompts, st.integers(0, 5)), max_size=40)


@settings(max_examples=150, deadline=None)
@given(steps, st.integers(3, 9))
def test_it_agrees_with_the_oracle(script: list[Step], usable: int) -> None:
    pool, oracle = BlockPool(usable + 1, BLOCK), Oracle(usable)
    running: list[tuple[Held, OracleRequest]] = []
    for verb, ids, number in script:
        if verb == "start":
            total = len(ids) + number
            held, expected = pool.admit(hashes_of(ids), len(ids), total), oracle.admit(ids, total)
            assert (held is None) == (expected is None)
            if held is None or expected is None:
                continue
            assert held.hit_blocks == expected[1]
            created = pool.store(held, len(ids))
            assert len(created) == oracle.store(expected[0])
            running.append((held, expected[0]))
        elif running:
            held, request = running.pop(number % len(running))
            pool.release(held)
            oracle.release(request)
        assert pool.free == oracle.free()
        assert pool.idle == len(oracle.idle)
        assert [hashes_of(list(prefix))[-1] for prefix in oracle.idle] == list(pool._idle)
        assert pool.blank + pool.idle + pool.held == usable


def run(pool: BlockPool, ids: list[int], salt: str | None = None) -> Held:
    held = pool.admit(hashes_of(ids, salt=salt), len(ids), len(ids))
    assert held is not None
    pool.store(held, len(ids))
    pool.release(held)
    return held


def test_the_tail_of_a_prefix_leaves_first() -> None:
    pool = BlockPool(6, BLOCK)
    run(pool, [1, 2, 3, 4, 5, 6])
    run(pool, [7, 7, 8, 8, 9, 9])
    assert pool.resident_blocks(hashes_of([1, 2, 3, 4, 5, 6])) == 2
    assert pool.take_evictions() == [hashes_of([1, 2, 3, 4, 5, 6])[2]]


def test_the_usage_gauge_does_not_see_idle_blocks() -> None:
    pool = BlockPool(6, BLOCK)
    for start in range(0, 60, 6):
        run(pool, list(range(start, start + 6)))
        assert pool.usage == 0.0
    assert pool.evicted_total == 25


def test_a_running_request_is_never_evicted() -> None:
    pool = BlockPool(6, BLOCK)
    held = pool.admit(hashes_of([1, 2, 3, 4]), 4, 4)
    assert held is not None
    pool.store(held, 4)
    assert pool.admit(hashes_of(list(range(10, 18))), 8, 8) is None
    assert pool.resident_blocks(hashes_of([1, 2, 3, 4])) == 2
    assert pool.usage == 2 / 5


def test_a_hit_refreshes_the_age() -> None:
    pool = BlockPool(5, BLOCK)
    run(pool, [1, 1, 0])
    run(pool, [2, 2, 0])
    run(pool, [1, 1, 0])
    run(pool, [3, 3, 4, 4, 5, 5])
    assert pool.resident_blocks(hashes_of([1, 1])) == 1
    assert pool.resident_blocks(hashes_of([2, 2])) == 0


def test_clear_waits_for_running_requests() -> None:
    pool = BlockPool(5, BLOCK)
    held = pool.admit(hashes_of([1, 1, 2]), 3, 3)
    assert held is not None
    assert not pool.clear()
    pool.release(held)
    assert pool.clear()
    assert pool.blank == 4


@settings(deadline=None)
@given(prompts, prompts, st.sampled_from((None, "", "a", "ab")), st.sampled_from((None, "", "a", "ab")))
def test_salts_and_adapters_make_separate_trees(
    first: list[int], second: list[int], left: str | None, right: str | None
) -> None:
    a, b = hashes_of(first, adapter=left, salt=right), hashes_of(second, adapter=right, salt=left)
    if left != right:
        assert not set(a) & set(b)
    else:
        shared = sum(1 for one, other in zip(a, b, strict=False) if one == other)
        common = next(
            (i for i, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]),
            min(len(first), len(second)),
        )
        assert shared == common // BLOCK
