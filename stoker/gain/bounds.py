"""The waterfall: what LRU, Stoker, Belady and an endless cache find of the prompt tokens, and why the rest is lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from analytics.cache_models import EndlessCache, LruCache, Prompt, belady
from analytics.prefix_linter import Divergence, Part, lint
from jobs.settings import JobSettings
from stoker.gain.asked import Asked, Traffic
from stoker.gain.simulation import Simulated, Simulation

DAY_MS = 86_400_000
ADOPT_POINTS = 3.0
"""Below this many points of gain a service is better off without Stoker."""
PREFILL_TOKENS_PER_S = 20_000.0
"""Of a replica, where its traffic does not show that it does more; as in the policy's default."""
CALIBRATION_STEPS = 9
LEAST_TOKENS, MOST_TOKENS = 20_000, 200_000_000


@dataclass(frozen=True)
class Question:
    """What is asked of a file.

    Attributes:
        capacity_tokens: KV tokens of one replica; None finds the size at which LRU finds what was measured.
        block_tokens: of the engines; None takes the trace's own, else 16.
        budget_share: part of a replica's prefill that warm-ups may use.
        host_tier: what was evicted waits in host memory; a warm-up moves it, at most one token a token asked for.
    """

    capacity_tokens: int | None
    block_tokens: int
    budget_share: float
    host_tier: bool


@dataclass(frozen=True)
class Killers:
    """Why tokens are missed.

    Attributes:
        kept_s: how long after its last use a run was still there, the longest but 5 %; None where nothing was found.
        lost_gap_s: after how long those came back that had been evicted, the median; None where none did.
    """

    kept_s: float | None
    lost_gap_s: float | None
    divergences: list[Divergence]


@dataclass(frozen=True)
class Waterfall:
    """Shares are of all prompt tokens.

    Attributes:
        calibrated: whether the capacity was found from measured tokens.
        measured_share: of the requests whose engine told.
        lru_share, stoker_share, belady_share, endless_share: of the caches simulated at this capacity.
    """

    requests: int
    replicas: int
    prompt_tokens: int
    span_ms: int
    capacity_tokens: int
    block_tokens: int
    calibrated: bool
    measured_share: float | None
    lru_share: float
    stoker_share: float
    belady_share: float
    endless_share: float
    simulated: Simulated
    killers: Killers

    @property
    def now_share(self) -> float:
        """Measured where it was, else LRU."""
        return self.lru_share if self.measured_share is None else self.measured_share

    @property
    def gain_points(self) -> float:
        """What Stoker adds to LRU, in points of all prompt tokens."""
        return 100 * (self.stoker_share - self.lru_share)

    @property
    def adopt(self) -> bool:
        """Whether the gain is worth having."""
        return self.gain_points >= ADOPT_POINTS

    def per_day(self, tokens: float) -> float:
        """What so many tokens over the file's span are in a day."""
        return tokens * DAY_MS / self.span_ms

    def share_per_day(self, share: float) -> float:
        """Tokens a day of a share of the prompt tokens."""
        return self.per_day(share * self.prompt_tokens)


def waterfall(traffic: Traffic, question: Question, settings: JobSettings, say: Callable[[str], None]) -> Waterfall:
    """Simulates all four over the traffic.

    Args:
        say: told what takes its time.
    """
    caches = _by_cache(traffic.requests, question.block_tokens)
    measured = traffic.measured
    measured_share = measured[0] / measured[1] if measured and measured[1] else None
    capacity_tokens, calibrated = question.capacity_tokens, False
    if capacity_tokens is None:
        if measured_share is None:
            raise ValueError("without measured tokens the capacity must be known")
        say("looking for the capacity at which LRU finds what was measured ...")
        capacity_tokens, calibrated = _calibrated(caches, traffic, question.block_tokens, measured_share), True
    blocks = max(1, capacity_tokens // question.block_tokens)
    total = traffic.prompt_tokens

    def share(found_blocks: int) -> float:
        return found_blocks * question.block_tokens / total

    lru_blocks = sum([_lru(prompts, blocks) for prompts in caches.values()])
    demanded_per_s = total / (traffic.span_ms / 1000) / len(caches)
    missed_per_s = demanded_per_s * (1 - share(lru_blocks))
    prefill_per_s = demanded_per_s if question.host_tier else max(PREFILL_TOKENS_PER_S, missed_per_s)
    say(f"playing {len(traffic.requests):,} requests through the job's decisions ...")
    simulated = Simulation(
        traffic,
        settings,
        blocks,
        question.block_tokens,
        1.0 if question.host_tier else question.budget_share,
        prefill_per_s,
    ).run()
    endless = sum([_endless(prompts) for prompts in caches.values()])
    return Waterfall(
        requests=len(traffic.requests),
        replicas=len(caches),
        prompt_tokens=total,
        span_ms=traffic.span_ms,
        capacity_tokens=capacity_tokens,
        block_tokens=question.block_tokens,
        calibrated=calibrated,
        measured_share=measured_share,
        lru_share=share(lru_blocks),
        stoker_share=share(simulated.found_blocks),
        belady_share=share(sum([sum(belady(prompts, blocks)) for prompts in caches.values()])),
        endless_share=share(endless),
        simulated=simulated,
        killers=killers(traffic, blocks, question.block_tokens),
    )


def killers(traffic: Traffic, capacity_blocks: int, block_tokens: int) -> Killers:
    """Why tokens are missed: how long LRU keeps what, and which templates part too early."""
    kept_ms: list[int] = []
    lost_ms: list[int] = []
    for requests in _grouped(traffic.requests).values():
        cache = LruCache(capacity_blocks)
        last_ms: dict[Hashable, int] = {}
        for request in requests:
            runs = request.runs(block_tokens)
            for key, blocks in runs:
                before_ms = last_ms.get(key)
                if before_ms is not None:
                    there = cache.held(key) >= blocks
                    (kept_ms if there else lost_ms).append(request.arrived_ms - before_ms)
                last_ms[key] = request.arrived_ms
            cache.request(runs)
    templates = ((template_of(request), _parts(request)) for request in traffic.requests)
    return Killers(_quantile_s(kept_ms, 0.95), _quantile_s(lost_ms, 0.5), lint(templates, traffic.span_ms))


def template_of(request: Asked) -> str:
    """Name of the template that a request was rendered with: its managed prompt, else template, else model."""
    event = request.event
    if event.prompt is not None:
        return f"{event.prompt.name}@{event.prompt.version}"
    if event.render is not None and event.render.template_sha:
        return event.render.template_sha[:12]
    return f"of model {event.model}"


def _parts(request: Asked) -> list[Part]:
    return [Part(segment.hash, segment.tokens, segment.role) for segment in request.event.segments]


def _grouped(requests: Iterable[Asked]) -> dict[tuple[str, str], list[Asked]]:
    groups: dict[tuple[str, str], list[Asked]] = defaultdict(list)
    for request in requests:
        groups[request.cache].append(request)
    return groups


def _by_cache(requests: Iterable[Asked], block_tokens: int) -> dict[tuple[str, str], list[Prompt]]:
    return {
        name: [request.runs(block_tokens) for request in group] for name, group in sorted(_grouped(requests).items())
    }


def _lru(prompts: list[Prompt], capacity_blocks: int) -> int:
    cache = LruCache(capacity_blocks)
    return sum([cache.request(prompt) for prompt in prompts])


def _endless(prompts: list[Prompt]) -> int:
    cache = EndlessCache()
    return sum([cache.request(prompt) for prompt in prompts])


def _calibrated(
    caches: dict[tuple[str, str], list[Prompt]], traffic: Traffic, block_tokens: int, measured_share: float
) -> int:
    """By halves in the logarithm: the share that LRU finds grows with the capacity."""
    low, high = float(LEAST_TOKENS), float(MOST_TOKENS)
    for _ in range(CALIBRATION_STEPS):
        middle = (low * high) ** 0.5
        blocks = max(1, int(middle) // block_tokens)
        found = sum([_lru(prompts, blocks) for prompts in caches.values()])
        if found * block_tokens / traffic.prompt_tokens < measured_share:
            low = middle
        else:
            high = middle
    return int((low * high) ** 0.5)


def _quantile_s(values_ms: list[int], share: float) -> float | None:
    if not values_ms:
        return None
    values_ms.sort()
    return values_ms[min(len(values_ms) - 1, int(share * len(values_ms)))] / 1000
