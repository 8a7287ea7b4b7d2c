"""The adapter half of a GPU pool's plan: which LoRA adapters to load on which replicas, and which may go (D12).

What may be loaded is what was announced: only an announcement tells where the weights lie. `adapter_wishes` says which
versions should be resident, `adapter_cache` which of them a replica should keep where slots are short. What a replica
holds is what its samples list; one that lists nothing is believed to hold what was loaded, for the time that policy
grants.
"""

from __future__ import annotations

from collections.abc import Iterator

from analytics.adapter_cache import AdapterCache, Uses
from analytics.adapter_uses import AdapterUses
from analytics.adapter_versions import AdapterVersions, KnownRecord
from analytics.adapter_wishes import (
    LINGER_MS,
    TRIGGER_ANNOUNCED,
    AdapterWishes,
    Wish,
    priority_of,
    tenure_of,
)
from analytics.adapters import AdapterRecord, should_keep
from analytics.budget import Budget
from analytics.commands import Allowance, Draft, Issuer
from analytics.copies import spread
from analytics.crowds import CrowdWatch
from analytics.envelopes import Partial, Tag, seal
from analytics.experiments import period_of
from analytics.memory import TargetMemory
from analytics.patterns import adapter_rate, prefill_priority
from analytics.plan_config import PlanConfig
from analytics.policy import PolicyBook
from analytics.pools import envelope_key
from analytics.records import Record, Section, pack, path, unpack
from analytics.replicas import Fleet, Ready
from analytics.shares import Shares
from analytics.stores import MapStore
from analytics.worth import Worth
from schemas import Announcement, Pattern, WarmupOutcome, encode
from schemas.canonical import adapter_name, bucket
from schemas.warmup_command import Action, Qos

TRIGGER_IDLE = "adapter_idle"
USES_KEPT_MS = 3_600_000
"""How long uses are remembered. Scaled."""
_SETTLE_MS = 5_000
"""What was loaded so shortly before a sample may not be in it yet. Samples come in real seconds: it is not scaled."""
_ADAPTER = "adapter:"


class ToldRecord(Record, frozen=True, array_like=True):
    """The interval in which an adapter's rate was told last."""

    scope: str
    adapter: str
    bucket: int


class AdapterPlanner:
    """Adapters of every scope in one GPU pool; a Redis pool never hears of any.

    Args:
        store: its records begin with `d`.
    """

    def __init__(
        self,
        config: PlanConfig,
        pool: str,
        memory: TargetMemory,
        fleet: Fleet,
        crowds: CrowdWatch,
        store: MapStore,
    ) -> None:
        self._config = config
        self._pool = pool
        self._memory = memory
        self._fleet = fleet
        self._budget = Budget(Section(store, "db"))
        self._issuer = Issuer(pool, memory, self._budget)
        self._tellings = Section(store, "dt")
        self._uses = AdapterUses(config.scaled_pane_ms, config.scaled(USES_KEPT_MS), Section(store, "du"))
        self._versions = AdapterVersions(Section(store, "dr"))
        self._cache = AdapterCache(config, store)
        self._wishes = AdapterWishes(config, self._uses, self._versions, self._cache, crowds)
        self._told: dict[tuple[str, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self._versions or self._uses or self._budget or self._cache or self._told)

    def busy(self, at_ms: int) -> bool:
        """Whether a later tick may have something to do, though nothing more is heard."""
        linger_ms = self._config.scaled(LINGER_MS)
        return bool(self._uses or self._cache.waits) or any(
            at_ms < known.from_ms + linger_ms for known in self._versions
        )

    @property
    def evidence(self) -> dict[str, float]:
        """Where it stands, for the planner's report."""
        return {"adapter_versions": float(len(self._versions)), **self._cache.evidence} if self._versions else {}

    # What it hears

    def on_announcement(self, message: Announcement) -> None:
        """Takes a new version of an adapter, or one back; other kinds are not its business."""
        if message.kind == "adapter":
            self._versions.on_announcement(message, self._used_ms)

    def on_partial(self, partial: Partial, before: Partial, policy: PolicyBook) -> None:
        """Counts a revision of a pane's totals of dimension `adapter`; any other tells that its scope was there."""
        scope = partial.scope
        if partial.dimension == "adapter":
            self._uses.add(partial, before)
        elif scope in self._versions.scopes and policy.budget().adapter_slots and policy.adapter(scope).prefetch:
            self._cache.visited(scope, partial.pane_start_ms)

    def on_outcome(self, outcome: WarmupOutcome, mark: int, policy: PolicyBook) -> bool:
        """Takes an outcome if it is of an adapter, and says whether it was."""
        if not outcome.target_key.startswith(_ADAPTER):
            return False
        stay_ms = self.stay_ms(outcome.scope, policy)
        self._budget.refund(outcome.scope, self._memory.on_outcome(outcome, mark, stay_ms))
        return True

    def stay_ms(self, scope: str, policy: PolicyBook) -> int:
        """How long a loaded adapter is taken as resident where nothing else is heard of it."""
        return self._config.scaled(policy.adapter(scope).resident_ms)

    def restore(self, key: str, blob: bytes) -> None:
        """Takes back one record; `key` is its own without the leading `d`."""
        if key[0] == "b":
            self._budget.restore(blob)
        elif key[0] == "c":
            self._cache.restore(key[1:], blob)
        elif key[0] == "u":
            self._uses.restore(blob)
        elif key[0] == "t":
            told = unpack(blob, ToldRecord)
            self._told[told.scope, told.adapter] = told.bucket
        else:
            self._versions.restore(blob)

    # What it does

    def forget(self, at_ms: int) -> None:
        """Drops uses that are long over, and versions that were replaced as long ago."""
        self._uses.forget(at_ms)
        used = set(self._uses.names())
        for name in [name for name in self._told if name not in used]:
            del self._told[name]
            self._tellings.remove(path(*name))
        self._versions.forget(at_ms - self._config.scaled(USES_KEPT_MS))

    def pass_panes(self, at_ms: int, policy: PolicyBook) -> None:
        """Lets what was asked for pass through the slots of a replica."""
        if not (slots := policy.budget().adapter_slots):
            if self._cache:
                self._cache.clear()
        elif self._cache.due(at_ms):
            standing = self._versions.standing(at_ms)
            tenures = {known.slot: tenure_of(known.scope, policy) for known in standing}
            slot_of = {(known.scope, name): known.slot for known in standing for name in known.asked_as}

            def uses_of(start_ms: int) -> Iterator[Uses]:
                for scope, adapter, count in self._uses.in_pane(start_ms):
                    if slot := slot_of.get((scope, adapter)):
                        yield Uses(scope, slot, count)

            self._cache.pass_panes(at_ms, slots, uses_of, tenures)

    def plan(self, at_ms: int, ready: Ready, policy: PolicyBook) -> list[bytes]:
        """COMMAND envelopes of what to load and unload now, and INSIGHT envelopes of adapters asked for often."""
        out = self._tell_rates(at_ms, policy)
        if not ready.names:
            return out
        shares = Shares(self._versions.scopes)
        for wish in self._wishes.all(at_ms, policy):
            for draft in self._drafts(wish, at_ms, ready, policy):
                if paid := self._issuer.pay(draft, at_ms, self._allowance(draft.scope, shares, policy)):
                    out.append(self._issuer.command(paid, at_ms, "tick", wish.priority.command, policy))
        return out

    def record(self, known: KnownRecord, policy: PolicyBook) -> AdapterRecord:
        """The spec's record of a version."""
        return AdapterRecord(
            adapter_name=known.name,
            rank=known.rank,
            alpha=known.alpha,
            dropout=known.dropout,
            target_modules=known.target_modules,
            last_updated=known.from_ms,
            last_used=self._used_ms(known),
            version=known.version,
            sha256=known.sha256,
            priority=priority_of(known.scope, policy),
        )

    def _tell_rates(self, at_ms: int, policy: PolicyBook) -> list[bytes]:
        out = []
        for scope, adapter in self._uses.names():
            uses = self._uses.in_minute(scope, adapter, at_ms)
            now = bucket(at_ms, self._config.scaled(policy.adapter(scope).repeat_ms))
            if not adapter_rate(uses) or self._told.get((scope, adapter), -1) >= now:
                continue
            self._told[scope, adapter] = now
            self._tellings.put(path(scope, adapter), pack(ToldRecord(1, scope, adapter, now)))
            qps = self._wishes.qps(uses)
            insight = Pattern(
                scope=scope,
                pool=self._pool,
                pattern="adapter_rate",
                subject=adapter,
                at_ms=at_ms,
                priority=prefill_priority(adapter, qps).raw,
                evidence={"uses_in_minute": uses, "qps": qps},
            )
            out.append(seal(Tag.INSIGHT, envelope_key(scope), encode(insight)))
        return out

    def _drafts(self, wish: Wish, at_ms: int, ready: Ready, policy: PolicyBook) -> Iterator[Draft]:
        """The load of a version where it is absent; where slots are short, what has to go first."""
        known = wish.known
        absent = [name for name in ready.names if not self._holds(known, name, at_ms, ready, policy)]
        slots = policy.budget().adapter_slots
        full = {name for name in absent if slots and len(self._fleet.adapters(name)) >= slots}
        free = [name for name in absent if name not in full]
        roomy = spread(free, policy.plan(known.scope).copies, known.key, ready.zone_of, ready.but(absent))
        if roomy:
            load = self._draft(known, "load", roomy, wish.trigger, at_ms, policy, wish.p_asked, wish.evidence)
            if load is not None:
                yield load
        # What a replica should not keep makes no room for itself; what was not asked for yet could not show its worth.
        worth_room = wish.trigger == TRIGGER_ANNOUNCED or self._cache.holds(known.slot)
        for name in sorted(full) if worth_room else ():
            idle = self._idle_on(name, known, at_ms, policy)
            if idle is not None:
                unload = self._draft(idle, "unload", (name,), TRIGGER_IDLE, at_ms, policy, 0.0, {})
                if unload is not None:
                    yield unload

    def _idle_on(self, replica: str, wanted: KnownRecord, at_ms: int, policy: PolicyBook) -> KnownRecord | None:
        """Of the adapters on a full replica, the longest unused one that need not stay and may go.

        None that was used in the last minute goes; of the others, those that were replaced, and those for which a
        replica should hold something else.
        """
        listed = set(self._fleet.adapters(replica))
        found = []
        for known in self._versions:
            scope = known.scope
            held = (known.name, known.version) in listed
            if not held or known.key == wanted.key or not policy.adapter(scope).unload or policy.frozen(scope):
                continue
            names = (adapter_name(known.name, known.version),)
            replaced = self._versions.replaced_ms(known) <= at_ms
            uses_ms = self._uses.last_two_ms(scope, *names)
            recent = any(self._uses.in_minute(scope, name, at_ms) for name in names)
            stays = self._cache.holds(known.slot) or (
                self._cache.rule == "spec" and should_keep(uses_ms, priority_of(scope, policy))
            )
            if recent or (stays and not replaced):
                continue
            found.append((uses_ms[-1] if uses_ms else 0, known.announcement, known))
        return min(found)[2] if found else None

    def _draft(
        self,
        known: KnownRecord,
        action: Action,
        names: tuple[str, ...],
        trigger: str,
        at_ms: int,
        policy: PolicyBook,
        p_asked: float,
        evidence: dict[str, float],
    ) -> Draft | None:
        scope, config = known.scope, self._config
        plan, adapter = policy.plan(scope), policy.adapter(scope)
        repeat_ms = config.scaled(adapter.repeat_ms)
        target, now, attempt = self._memory.get(scope, known.key), bucket(at_ms, repeat_ms), 1
        if target is not None:
            if target.live(at_ms) or target.bucket >= now or target.rests_until_ms > at_ms:
                return None
            attempt = target.next_attempt(now, at_ms)
        qos: Qos = plan.qos  # type: ignore[assignment]
        return Draft(
            scope=scope,
            key=known.key,
            source=known.target,
            unit=f"{known.name}@{period_of(at_ms)}",
            bucket=now,
            attempt=attempt,
            life_ms=config.life_ms(adapter.life_ms),
            repeat_ms=repeat_ms,
            names=names,
            charge=1.0,
            worth=Worth(p_asked=p_asked, p_absent=1.0, saved_ms=adapter.load_ms / config.time_scale, cost=len(names)),
            trigger=trigger,
            qos=qos,
            evidence={**evidence, "replicas_named": float(len(names))},
            action=action,
            content_version=known.version,
            exempt=action == "unload",
        )

    # What it knows

    def _holds(self, known: KnownRecord, replica: str, at_ms: int, ready: Ready, policy: PolicyBook) -> bool:
        if (known.name, known.version) in self._fleet.adapters(replica):
            return True
        target = self._memory.get(known.scope, known.key)
        if target is None or target.resident_until(replica, ready.mark_of(replica)) <= at_ms:
            return False
        loaded_ms = target.resident_until(replica, ready.mark_of(replica)) - self.stay_ms(known.scope, policy)
        return not self._fleet.tells_adapters(replica) or loaded_ms + _SETTLE_MS > self._fleet.sampled_ms(replica)

    def _used_ms(self, known: KnownRecord) -> int:
        """Event time of a version's last use, by any of its names; 0 where none is remembered."""
        return max(self._uses.last_two_ms(known.scope, *known.asked_as), default=0)

    def _allowance(self, scope: str, shares: Shares, policy: PolicyBook) -> Allowance:
        budget = policy.budget()
        rate = budget.adapter_loads_per_s * shares.of(scope, policy)
        burst = max(1.0, rate * self._config.scaled(budget.burst_ms) / 1000) if rate > 0 else 0.0
        return Allowance(rate, burst)
