"""Of backtest `kv`: whether prefixes are asked for as often as the prefix tree says (D11).

The tree of the job hears the trace slide by slide. Judged is the second half of its time, what was learned before it
and goes on being learned. The rule's constants were chosen on the first half alone; the second half's figure was seen
twice before the last two changes to the rule, neither of which was made for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from analytics.envelopes import Chain, Root
from analytics.facts import ROLE_INDEX
from analytics.prefix_nodes import HASH_BYTES, root_id
from analytics.prefix_pool import PrefixPool
from analytics.prefixes import PrefixConfig
from analytics.stores import MemoryMapStore
from schemas.canonical import h128
from stoker.bench.figures import Figure, at_most
from stoker.replay.mooncake import TRACE_BLOCK_TOKENS, Line

JUDGED_MS = 60_000
BINS = 10
GOAL = 0.05
"""What D11 asks of P(absent)."""
_ROOT = Root("m", "", "", "", "")


class Foretold(NamedTuple):
    """What was said of a prefix, and what came of it.

    Attributes:
        uses: requests for it until then.
        promised, expected: its chance of being asked for within the horizon, by hotness alone and as the job has it.
        asked: whether it was.
    """

    uses: int
    promised: float
    expected: float
    asked: bool


def reliability_error(said: Sequence[tuple[float, bool]]) -> float:
    """Mean distance of a foretold from a found share over ten bins of what was foretold, by their size."""
    off = [0.0] * BINS
    for chance, came in said:
        off[min(BINS - 1, int(chance * BINS))] += chance - came
    return sum(map(abs, off)) / max(1, len(said))


def asked_figures(lines: Sequence[Line]) -> Iterator[Figure]:
    """Figures reliability.{spec,stoker}, and the same of prefixes that were asked for once."""
    told = list(foretold(lines))
    for name, some in (("reliability", told), ("reliability_once", [each for each in told if each.uses == 1])):
        before = reliability_error([(each.promised, each.asked) for each in some])
        yield Figure(f"{name}.spec", before)
        after = reliability_error([(each.expected, each.asked) for each in some])
        yield Figure(f"{name}.stoker", after, baseline=before, goal=at_most(GOAL))


def foretold(lines: Sequence[Line], config: PrefixConfig | None = None) -> Iterator[Foretold]:
    """What is said of every prefix that is held, once a minute in the second half of a trace."""
    config = config or PrefixConfig(asked_rule="tuned")
    pool = PrefixPool(config, "gpu", MemoryMapStore())
    names = {block: bytes.fromhex(h128(str(block))) for line in lines for block in line.hash_ids}
    times: dict[bytes, list[int]] = {}
    for line in lines:
        for block in set(line.hash_ids):
            times.setdefault(names[block], []).append(line.timestamp)
    end_ms, key, place = lines[-1].timestamp, root_id(_ROOT), 0
    for at_ms in range(config.slide_ms, end_ms - config.horizon_ms + 1, config.slide_ms):
        while place < len(lines) and lines[place].timestamp < at_ms:
            pool.add(key, _ROOT, _chain(lines[place], names))
            place += 1
        pool.end_slide("default", at_ms)
        if at_ms * 2 > end_ms and at_ms % JUDGED_MS == 0:
            yield from _judged(pool, at_ms, config.horizon_ms, times)


def _judged(pool: PrefixPool, at_ms: int, horizon_ms: int, times: dict[bytes, list[int]]) -> Iterable[Foretold]:
    for node in pool.nodes:
        uses = times[node.hash]
        until = bisect_left(uses, at_ms)
        asked = until < len(uses) and uses[until] < at_ms + horizon_ms
        promised = pool.p_asked(pool.promised_rate_per_s(node, at_ms))
        yield Foretold(until, promised, pool.p_asked(pool.asked_rate_per_s(node, at_ms)), asked)


def _chain(line: Line, names: dict[int, bytes]) -> Chain:
    count = len(line.hash_ids)
    hashes = b"".join([names[block] for block in line.hash_ids])
    assert len(hashes) == HASH_BYTES * count
    roles = bytes([ROLE_INDEX["block"]]) * count
    return Chain(0, hashes, (TRACE_BLOCK_TOKENS,) * count, roles, 1.0, line.timestamp)
