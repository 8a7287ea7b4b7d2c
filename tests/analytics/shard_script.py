"""Facts for one demand shard, by hand and by Hypothesis, and a run of them with timers as an operator fires them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from analytics import facts
from analytics.demand import Demand, DemandConfig
from analytics.facts import Flag
from analytics.policy import PolicyBook
from analytics.stores import MemoryLogStore
from schemas import Policy, Segment
from schemas.canonical import h128, segment_hash

START_MS = 1_700_000_000_000
ONE = facts.MICRO


def query(name: str) -> bytes:
    """16 bytes for a query."""
    return bytes.fromhex(h128(name))


def chain(*contents: str) -> list[Segment]:
    """A chain of segments with these contents."""
    parent, found = h128("root"), []
    for content in contents:
        parent = segment_hash(parent, "user", content)
        found.append(Segment(parent, len(content)))
    return found


def request(
    at_ms: int,
    identity: int,
    asked: str = "q",
    *,
    finished: bool = False,
    demand: bool = True,
    text: str | None = "words",
    scope: str = "a",
    pool: str = "p",
    template: str = "",
    adapter: str = "",
    user: int = 1,
    weight_micro: int = ONE,
    segments: Sequence[Segment] = (),
    answer: facts.Answer | None = None,
) -> bytes:
    """A request's fact in shard 0."""
    flags = (Flag.ANSWER if answer else 0) | (Flag.FINISHED if finished else 0) | (Flag.DEMAND if demand else 0)
    flags |= Flag.TEXT_TOO_LONG if text is None else Flag.TEXT if text else 0
    names = facts.pack_names(scope, pool, "m", adapter, template, "", "", template)
    tail = (text or "").encode()
    return facts.pack_request(
        0,
        int(flags),
        at_ms,
        identity,
        user,
        query(asked),
        weight_micro,
        names,
        facts.pack_chain(segments),
        tail,
        facts.pack_answer(answer) if answer else b"",
    )


def answered(
    name: str, *, ref: str | None = None, domain: str = "", finish_reason: str = "stop", status: int = 200
) -> facts.Answer:
    """What a finished request tells of its answer; by default whole, and its text under its own hash."""
    response = query(name) if name else b""
    return facts.Answer(response, response.hex() if ref is None else ref, domain, finish_reason, status, "")


def reward(
    at_ms: int, identity: int, asked: str = "q", answer: str = "", share: float = 0.5, scope: str = "a"
) -> bytes:
    """A reward's fact in shard 0; without `answer` it names none."""
    names = facts.pack_names(scope, "")
    response = query(answer) if answer else b""
    return facts.pack_reward(0, at_ms, identity, query(asked), round(share * ONE), names, "judge", response)


CHAINS = ((), chain("a"), chain("a", "b"), chain("a", "c", "d"), chain("e", "f", "g", "h"))


@dataclass(frozen=True)
class Step:
    """One fact, how far event time stands before it, and whether the shard dies after it or a freeze is toggled."""

    fact: bytes
    watermark_ms: int
    crash: bool = False
    freeze: bool = False


@st.composite
def fact(draw: st.DrawFn, at_ms: int) -> bytes:
    """Any fact at about a time."""
    kind = draw(st.sampled_from(["request"] * 12 + ["dead"] + ["reward"] * 4))
    if kind == "dead":
        return facts.pack_dead(0, at_ms)
    scope = draw(st.sampled_from(["a", "b"]))
    asked = f"q{draw(st.integers(0, 4))}"
    if kind == "reward":
        name = draw(st.sampled_from(["", "x", "y"]))
        return reward(at_ms, draw(st.integers(1, 9)), asked, name, draw(st.sampled_from([0.0, 0.3, 1.0])), scope)
    finished = draw(st.booleans())
    answer = draw(st.sampled_from([None, answered("x"), answered("y", domain="news"), answered("", domain="news")]))
    return request(
        at_ms,
        draw(st.integers(1, 12)),
        asked,
        finished=finished,
        answer=answer if finished else None,
        demand=draw(st.sampled_from([True] * 8 + [False])),
        text=draw(st.sampled_from(["words", "words", "", None])),
        scope=scope,
        pool=draw(st.sampled_from(["p", "p", "r"])),
        template=draw(st.sampled_from(["", "t", "u"])),
        adapter=draw(st.sampled_from(["", "x"])),
        user=draw(st.integers(0, 3)),
        weight_micro=draw(st.sampled_from([ONE, ONE, 333_333, 2_700_001])),
        segments=draw(st.sampled_from(CHAINS)),
    )


@st.composite
def steps(draw: st.DrawFn, backwards: bool = True) -> list[Step]:
    """Facts around a watermark that creeps, jumps, stands and (if wanted) goes back."""
    found = []
    watermark = START_MS
    moves = [0, 0, 10, 400, 1_100, 9_000] + ([-3_000] if backwards else [])
    for _ in range(draw(st.integers(1, 60))):
        watermark += draw(st.sampled_from(moves))
        at_ms = watermark + draw(st.integers(-4_000, 3_500))
        freeze = draw(st.sampled_from([False] * 7 + [True]))
        found.append(Step(draw(fact(at_ms)), watermark, draw(st.booleans()), freeze))
    return found


@dataclass
class Life:
    """What a run gave.

    Attributes:
        outputs: envelopes, one list a call.
        demand: the shard as it ended.
        store: its store.
    """

    outputs: list[list[bytes]]
    demand: Demand
    store: MemoryLogStore

    @property
    def envelopes(self) -> list[bytes]:
        """All envelopes in order."""
        return [envelope for call in self.outputs for envelope in call]


def live(config: DemandConfig, script: Sequence[Step], *, crashes: bool = False, finish: bool = True) -> Life:
    """Runs a script: due timers before each fact, all timers at the end; crashes are taken only where asked for."""
    store = MemoryLogStore(config.logs)
    life = Life([], Demand(config, 0, store), store)
    book = PolicyBook()
    version = 0

    def die() -> None:
        life.store = life.store.copy()
        life.demand = Demand(config, 0, life.store)

    def slide() -> None:
        due = life.demand.next_timer_ms
        assert due is not None
        life.outputs.append(life.demand.on_timer(due, book))

    for step in script:
        if step.freeze:
            version += 1
            body = {"frozen": version % 2 == 1}
            book.apply(Policy(scope="a", section="freeze", writer="w", version=version, at_ms=0, body=body))
        while life.demand.next_timer_ms is not None and life.demand.next_timer_ms <= step.watermark_ms:
            slide()
            if step.crash and crashes:
                die()
        life.outputs.append(life.demand.on_fact(step.fact, step.watermark_ms, book))
        if step.crash and crashes:
            die()
    while finish and life.demand.next_timer_ms is not None:
        slide()
        if crashes:
            die()
    return life
