"""Backtest `restart`: a rolling restart of four replicas, with Stoker and without, and what users find cached.

Each replica in turn drains, is gone for a while and comes back with an empty cache; sessions stay on one replica and go
to the next while theirs is away. `lru` has nobody who warms, `stoker` the job's own decisions over the same requests,
`gate` also keeps users away from a replica that is back until the executor's own rule says that its cache is warm.
Hit rates are of prompt tokens; `usual` is the two minutes before the first restart. Prefill takes no time here and
warm-ups are done when they are told, as far as the planner's budget lets them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

import msgspec

from analytics.policy import ExperimentPolicy, PlanPolicy, PolicyBook, PolicyDefaults
from connectors.engines.base import EngineMetrics
from connectors.engines.histogram import Histogram
from executor.cache_warm import SETTLE_MS
from executor.hot_mass import HotMass
from executor.settings import ExecutorSettings
from executor.warmth import Warmth, WarmthRule
from jobs.settings import JobSettings, ScopeSettings
from schemas import RequestEvent, WarmupCommand, WarmupOutcome
from schemas.topics import COMMANDS, OUTCOMES, TELEMETRY, Topic
from stoker.bench.figures import Figure, Report, at_least
from stoker.local_job import LocalJob
from stoker.offline_loop import OfflineLoop
from stoker.replay.generated import GeneratedConfig, generated
from stoker.replay.offline import OfflineConfig, OfflineService, Restart
from stoker.replay.turns import until

Rule = Literal["lru", "stoker", "gate"]
RULES: tuple[Rule, ...] = ("lru", "stoker", "gate")
SEEDS = (41, 42, 43)
REPLICAS = 4
CAPACITY_TOKENS = 120_000
"""Room for all documents that are liked: what a restart loses is worth something only where it would have stayed."""
REQUESTS_PER_S = 24.0
LEAD_MS = 300_000
DRAINS_MS = 5_000
AWAY_MS = 20_000
EVERY_MS = 180_000
"""From one replica's restart to the next one's: users are back for a minute before, also behind the gate."""
USUAL_MS = 120_000
BUCKET_MS = 10_000
CURVE_MS = 60_000


@dataclass
class Hits:
    """Prompt tokens of requests, and what of them was cached."""

    asked: int = 0
    cached: int = 0

    @property
    def rate(self) -> float:
        """Of prompt tokens; 0 where nobody asked."""
        return self.cached / self.asked if self.asked else 0.0


@dataclass
class Played:
    """What came of a run.

    Attributes:
        usual: before the first restart.
        rolling: of all replicas, from the first restart on.
        back: on replicas that came back, by ten seconds since they were ready.
        kept_out_ms: how long the gate kept users away, of each restart.
        warmed_tokens: what warm-ups computed on all replicas from the first restart on.
    """

    usual: Hits = field(default_factory=Hits)
    rolling: Hits = field(default_factory=Hits)
    back: dict[int, Hits] = field(default_factory=lambda: defaultdict(Hits))
    kept_out_ms: list[int] = field(default_factory=list)
    warmed_tokens: int = 0


class _Gate:
    """The executor's rule whether a replica's cache is warm, asked once a second of every replica."""

    def __init__(self, service: OfflineService) -> None:
        settings, stay_ms = ExecutorSettings(), PlanPolicy().prefix_resident_ms + SETTLE_MS
        self._service = service
        self._ended: set[str] = set()
        self._mass = HotMass(lambda _: stay_ms, self._ended.__contains__, settings.watched_prefixes)
        patience_ms = round(1000 * settings.cache_warm_patience_s)
        self._warmth = Warmth(WarmthRule(settings.cache_warm_share, patience_ms, SETTLE_MS), self._mass)
        self._served: Counter[tuple[str, str]] = Counter()

    def served(self, replica: str, at_ms: int) -> None:
        """A request was answered there: by such counters the rule tells one life from the next."""
        self._served[replica, self._service.life_of(replica, at_ms)[0]] += 1

    def asked(self, command: WarmupCommand) -> None:
        """Every executor hears of each command."""
        self._mass.asked(command)

    def heard(self, outcome: WarmupOutcome) -> None:
        """Every executor hears of each outcome."""
        self._ended.add(outcome.outcome_id)
        self._mass.heard(outcome)

    def shut(self, replica: str, at_ms: int) -> bool:
        """Whether users are to be kept away: it is gone, or not warm yet."""
        life, state = self._service.life_of(replica, at_ms)
        count = self._served[replica, life]
        self._warmth.looked(replica, None if state == "lost" else _metrics(count), at_ms)
        siblings = [
            name
            for name in self._service.replicas
            if name != replica and self._service.life_of(name, at_ms)[1] == "ready"
        ]
        return state == "lost" or not self._warmth.verdict(replica, siblings, state == "draining", at_ms).warm


def _metrics(served: int) -> EngineMetrics:
    return EngineMetrics(
        running=0, waiting=0, kv_usage=0.0, prefix_query_tokens=0, prefix_hit_tokens=0, preemptions=0, rejections=0,
        prompt_tokens=served, sleeping=False, blocks_total=None, block_tokens=None,
        ttft_s=Histogram((math.inf,), (float(served),), 0.0),
    )  # fmt: skip


class _Play(OfflineLoop):
    """One run."""

    def __init__(self, rule: Rule, seed: int) -> None:
        start_ms = OfflineConfig.start_ms
        restarts = tuple(_restart(number, start_ms + LEAD_MS + number * EVERY_MS) for number in range(REPLICAS))
        config = OfflineConfig(replicas=REPLICAS, capacity_tokens=CAPACITY_TOKENS, restarts=restarts)
        defaults = PolicyDefaults(
            plan=PlanPolicy(embeddings=False, second_sight=False), experiment=ExperimentPolicy(hold_share=0.0)
        )
        job = LocalJob(JobSettings(scopes=ScopeSettings(unknown="own")), PolicyBook(defaults))
        super().__init__(OfflineService(config), job, warms=rule != "lru")
        self._rule, self._seed = rule, seed
        self._gate = _Gate(self.service)
        self._opened_ms: dict[Restart, int] = {}
        self.played = Played()

    def run(self) -> Played:
        """All of it, until the next restart would come."""
        workload = GeneratedConfig(requests_per_s=REQUESTS_PER_S, seed=self._seed)
        self.play(until(generated(workload), LEAD_MS + REPLICAS * EVERY_MS))
        self.played.kept_out_ms = [opened - restart.ready_at_ms for restart, opened in self._opened_ms.items()]
        return self.played

    def keep(self, topic: Topic, value: bytes, at_ms: int, key: str | None) -> None:
        """Executors hear of all; the gate is asked after the samples of a second."""
        if topic is COMMANDS:
            self._gate.asked(msgspec.json.decode(value, type=WarmupCommand))
        elif topic is OUTCOMES:
            outcome = msgspec.json.decode(value, type=WarmupOutcome)
            self._gate.heard(outcome)
            if at_ms >= self.service.config.restarts[0].drains_at_ms:
                self.played.warmed_tokens += outcome.tokens_warmed
        elif topic is TELEMETRY and key == self.service.replicas[-1]:
            shut = {name for name in self.service.replicas if self._gate.shut(name, at_ms)}
            self.service.kept_out = shut if self._rule == "gate" else set()

    def asked(self, event: RequestEvent, at_ms: int) -> None:
        """Counts what a request found."""
        if event.phase != "finished" or event.replica is None or event.cache is None:
            return
        self._gate.served(event.replica, at_ms)
        for hits in self._places(event.replica, event.occurred_at_ms):
            hits.asked += event.input_tokens or 0
            hits.cached += event.cache.kv_cached_tokens or 0

    def _places(self, replica: str, at_ms: int) -> list[Hits]:
        """Where a request of a time counts."""
        restarts, played = self.service.config.restarts, self.played
        first_ms = restarts[0].drains_at_ms
        if first_ms - USUAL_MS <= at_ms < first_ms:
            return [played.usual]
        places = [played.rolling] if at_ms >= first_ms else []
        for restart in restarts:
            if restart.replica == replica and at_ms >= restart.ready_at_ms:
                since_ms = at_ms - self._opened_ms.setdefault(restart, at_ms)
                if since_ms < CURVE_MS:
                    places.append(played.back[since_ms // BUCKET_MS])
        return places


def _restart(number: int, at_ms: int) -> Restart:
    lost_ms = at_ms + DRAINS_MS
    return Restart(f"r{number}", at_ms, lost_ms, lost_ms + AWAY_MS)


def played(rule: Rule, seed: int) -> Played:
    """One rolling restart; the same requests for every rule."""
    return _Play(rule, seed).run()


def _mean(runs: Sequence[Played], hits: Callable[[Played], Hits]) -> float:
    return fmean(hits(run).rate for run in runs)


def _first_minute(run: Played) -> Hits:
    return Hits(sum(hits.asked for hits in run.back.values()), sum(hits.cached for hits in run.back.values()))


def _bucket(number: int) -> Callable[[Played], Hits]:
    return lambda run: run.back[number]


def run() -> Report:
    """Figures hit_rate.{usual,rolling,back}.RULE, hit_rate.back_Ns.RULE for the ten seconds from N on, kept_out_s.gate
    and warmed_tokens.RULE a minute, on all replicas; means over seeds, the baseline is `lru` over the same requests."""
    report = Report("restart")
    runs = {rule: [played(rule, seed) for seed in SEEDS] for rule in RULES}
    buckets = {f"back_{number * BUCKET_MS // 1000}s": _bucket(number) for number in range(CURVE_MS // BUCKET_MS)}
    views = {"usual": lambda run: run.usual, "rolling": lambda run: run.rolling, "back": _first_minute, **buckets}
    for view, hits in views.items():
        usual = _mean(runs["lru"], hits)
        for rule in RULES:
            goal = at_least(1.0, "ratio") if view in ("rolling", "back") and rule != "lru" else None
            report.add(Figure(f"hit_rate.{view}.{rule}", _mean(runs[rule], hits), baseline=usual, goal=goal))
    kept_out_s = fmean(ms / 1000 for run in runs["gate"] for ms in run.kept_out_ms)
    report.add(Figure("kept_out_s.gate", kept_out_s, "s"))
    for rule in RULES[1:]:
        tokens = fmean(run.warmed_tokens / (REPLICAS * EVERY_MS / 60_000) for run in runs[rule])
        report.add(Figure(f"warmed_tokens.{rule}", tokens, "tokens/min"))
    return report
