"""A shard may be dropped at any point and go on from its store: outputs, counters and timers are those of one life."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from analytics import facts
from analytics.demand import Demand, DemandConfig
from analytics.panes import PaneCaps
from analytics.policy import PolicyBook
from analytics.second_sight import SecondSightConfig
from analytics.stores import MemoryLogStore
from schemas import Policy, Segment
from schemas.canonical import h128, segment_hash

START_MS = 1_700_000_000_000

SMALL = DemandConfig(
    shards=1,
    pane_ms=1_000,
    window_ms=5_000,
    lateness_ms=2_000,
    close_after_ms=1_000,
    slots=2,
    top=3,
    max_delta_bytes=300,
    caps=PaneCaps(keys=6, users_per_key=2),
    second_sight=SecondSightConfig(shards=1, time_scale=1_000.0, max_asked=5),
)


@dataclass(frozen=True)
class Step:
    """One fact, how far the watermark moved before it, and whether the shard dies after it."""

    fact: bytes
    watermark_ms: int
    crash: bool
    freeze: bool


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    found = []
    watermark = START_MS
    for _ in range(draw(st.integers(1, 60))):
        watermark += draw(st.sampled_from([0, 0, 10, 400, 1_100, 9_000, -3_000]))
        at_ms = max(0, watermark + draw(st.integers(-4_000, 3_500)))
        found.append(
            Step(draw(fact(at_ms)), watermark, draw(st.booleans()), draw(st.sampled_from([False, False, False, True])))
        )
    return found


@st.composite
def fact(draw: st.DrawFn, at_ms: int) -> bytes:
    kind = draw(st.sampled_from(["request"] * 12 + ["dead", "reward"]))
    query = bytes.fromhex(h128(f"q{draw(st.integers(0, 4))}"))
    if kind == "dead":
        return facts.pack_dead(0, at_ms)
    scope = draw(st.sampled_from(["a", "b"]))
    if kind == "reward":
        return facts.pack_reward(0, at_ms, 7, query, 500_000, facts.pack_names(scope, ""))
    flags = draw(st.sampled_from([0, facts.Flag.FINISHED])) | draw(st.sampled_from([facts.Flag.DEMAND] * 8 + [0]))
    text = draw(st.sampled_from([b"", b"words", b"words"]))
    flags |= facts.Flag.TEXT if text else draw(st.sampled_from([0, facts.Flag.TEXT_TOO_LONG]))
    pool = draw(st.sampled_from(["p", "p", "r"]))
    names = facts.pack_names(
        scope, pool, "m", draw(st.sampled_from(["", "x"])), "", "", "", draw(st.sampled_from(["", "t", "u"]))
    )
    return facts.pack_request(
        0,
        int(flags),
        at_ms,
        draw(st.integers(1, 12)),
        draw(st.integers(0, 3)),
        query,
        draw(st.sampled_from([1_000_000, 1_000_000, 333_333, 2_700_001])),
        names,
        facts.pack_chain(draw(st.sampled_from(CHAINS))),
        text,
    )


def _chain(*contents: str) -> list[Segment]:
    parent, found = h128("root"), []
    for content in contents:
        parent = segment_hash(parent, "user", content)
        found.append(Segment(parent, len(content)))
    return found


CHAINS = [[], _chain("a"), _chain("a", "b"), _chain("a", "c", "d"), _chain("e", "f", "g", "h")]


def run(config: DemandConfig, script: Sequence[Step], crashes: bool) -> tuple[list[list[bytes]], dict[str, int]]:
    """All outputs call by call, with timers fired as an operator would, and the counters at the end."""
    store = MemoryLogStore(config.logs)
    demand = Demand(config, 0, store)
    book = PolicyBook()
    out: list[list[bytes]] = []
    version = 0

    def die() -> None:
        nonlocal store, demand
        if crashes:
            store = store.copy()
            demand = Demand(config, 0, store)

    for step in script:
        if step.freeze:
            version += 1
            body = {"frozen": version % 2 == 1}
            book.apply(Policy(scope="a", section="freeze", writer="w", version=version, at_ms=0, body=body))
        for _ in range(12):
            if demand.next_timer_ms is None or demand.next_timer_ms > step.watermark_ms:
                break
            out.append(demand.on_timer(demand.next_timer_ms, book))
            if step.crash:
                die()
        out.append(demand.on_fact(step.fact, step.watermark_ms, book))
        if step.crash:
            die()
    for _ in range(40):
        if demand.next_timer_ms is None:
            break
        out.append(demand.on_timer(demand.next_timer_ms, book))
        die()
    assert demand.next_timer_ms is None
    return out, dict(demand.counters)


@settings(max_examples=120, deadline=None)
@given(steps())
def test_one_life_and_many_publish_the_same_bytes(script: list[Step]) -> None:
    whole = run(SMALL, script, crashes=False)
    broken = run(SMALL, script, crashes=True)
    assert whole == broken
