"""Operator 2: one `Demand` per shard, restored from keyed state on first touch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyflink.datastream import RuntimeContext
from pyflink.datastream.functions import KeyedBroadcastProcessFunction

from analytics.bundles import unpack
from analytics.demand import Demand
from analytics.facts import shard_of
from jobs import metrics
from jobs.interpreter import share_core
from jobs.placement import shard_keys
from jobs.policies import BroadcastPolicies
from jobs.settings import JobSettings
from jobs.state import Marker, check_marker, open_log_store, open_marker
from jobs.streams import policy_state
from jobs.tallies import Tallies
from jobs.timers import Alarms, event_time_ms


class DemandOperator(KeyedBroadcastProcessFunction):  # type: ignore[misc]  # untyped base
    """Facts in, envelopes out. Side outputs are the next operator's: a timer here cannot use them.

    Args:
        settings: the JSON of the job's settings.
    """

    def __init__(self, settings: str) -> None:
        self._settings = settings

    def open(self, runtime_context: RuntimeContext) -> None:
        """Opens state; live shards are caches of it."""
        settings = JobSettings.from_json(self._settings)
        share_core(settings, runtime_context)
        self._config = settings.demand()
        shards = self._config.shards
        self._shards = {key: shard for shard, key in enumerate(shard_keys(shards))}
        # Each shard ends its slide a little later than the one before, so that no event waits for all of them.
        self._delays_ms = [settings.slide_spread_ms * shard // shards for shard in range(shards)]
        self._marker = Marker(settings.warmup.shards)
        self._marker_state = open_marker(runtime_context)
        self._store = open_log_store(runtime_context, self._config.logs)
        self._policies = BroadcastPolicies(policy_state(), settings.policy_defaults())
        self._alarms = Alarms()
        self._taken = runtime_context.get_metrics_group().counter(metrics.FACTS)
        self._tallies = Tallies(runtime_context.get_metrics_group(), metrics.DEMAND)
        self._live: dict[int, Demand] = {}

    def _shard(self, shard: int) -> Demand:
        found = self._live.get(shard)
        if found is None:
            check_marker(self._marker_state, self._marker)
            found = self._live[shard] = Demand(self._config, shard, self._store)
            self._tallies.begin(shard, found.counters)
        return found

    def process_element(self, value: bytes, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Sequence[bytes]:
        """A bundle of facts of one shard. No event time passes within it."""
        facts = unpack(value)
        shard = shard_of(facts[0])
        demand = self._shard(shard)
        timers = ctx.timer_service()
        now_ms, book = event_time_ms(timers), self._policies.book(ctx)
        out: list[bytes] = []
        for fact in facts:
            out += demand.on_fact(fact, now_ms, book)
        self._taken.inc(len(facts))
        self._settle(shard, demand, timers)
        return out

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Sequence[bytes]:
        """A slide of the current shard has ended."""
        shard = self._shards[int(ctx.get_current_key())]
        demand = self._shard(shard)
        at_ms = timestamp - self._delays_ms[shard]
        if not Alarms.due(at_ms, demand.next_timer_ms):
            return ()
        out = demand.on_timer(at_ms, self._policies.book(ctx))
        self._tallies.tell(shard, demand.counters)
        self._settle(shard, demand, ctx.timer_service())
        return out

    def _settle(self, shard: int, demand: Demand, timers: Any) -> None:
        self._store.flush()
        self._alarms.arm(shard, demand.next_timer_ms, timers, self._delays_ms[shard])

    def process_broadcast_element(self, value: bytes, ctx: KeyedBroadcastProcessFunction.Context) -> Sequence[Any]:
        """One policy."""
        self._policies.apply(value, ctx)
        return ()
