"""How adapters follow from what happens: a tenant's session, an adapter before, a base model's load, the hour (D12).

Each *signal* says how often an adapter was asked for in its situation, as a plain smoothed share, from past requests
only: (k + 0.1) / (n + 1). The shares trust their own counts; what they are worth is measured by `AdapterPrefetch`.

* tenant: share of the tenant's sessions with the adapter, when one has begun. A session ends after 30 idle minutes.
* companion: share of the tenant's sessions with one adapter that also had the other, when the one is asked for.
* load: share c of a base model's visits (a session's requests for it) that asked for the adapter; of n visits that
  have begun lately and not asked for any adapter yet, 1 - (1 - c)^n will.
* hour: share of the last days on which the adapter was asked for within the hours that come.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from analytics.records import Record, Section, pack, path, unpack

Signal = Literal["tenant", "companion", "load", "hour"]
SIGNALS: tuple[Signal, ...] = ("tenant", "companion", "load", "hour")
HOUR_MS = 3_600_000
SESSION_GAP_MS = 1_800_000
"""The idle time that ends a session, the usual one of web analytics."""
DAYS = 14
PRIOR = 0.1
_HOURS = DAYS * 24
_MASK = (1 << _HOURS) - 1


@dataclass(frozen=True)
class HabitConfig:
    """Bounds of what is remembered; the longest untouched goes first, in a tenant or base model the rarest adapter.

    Attributes:
        aged_at: sessions of a tenant or visits of a model at which all their counts are halved.
        horizon_ms: how far the hour looks ahead.
    """

    max_tenants: int = 2_048
    max_models: int = 256
    max_adapters: int = 2_048
    adapters_of_tenant: int = 16
    adapters_of_model: int = 64
    companions: int = 8
    visitors_of_model: int = 64
    aged_at: float = 64.0
    horizon_ms: int = HOUR_MS


class TenantRecord(Record, frozen=True, array_like=True):
    """A tenant: its sessions, those with each adapter, and those with two; which ones the present session had."""

    tenant: str
    last_ms: int
    sessions: float
    counts: dict[str, float]
    together: dict[str, dict[str, float]]
    now: tuple[str, ...]


class ModelRecord(Record, frozen=True, array_like=True):
    """A base model: its visits, those with each adapter; of late visitors when, and if they asked for an adapter."""

    model: str
    last_ms: int
    visits: float
    counts: dict[str, float]
    visitors: dict[str, tuple[int, bool]]


class HoursRecord(Record, frozen=True, array_like=True):
    """The hours in which an adapter was asked for: bit i is i hours before the last one."""

    adapter: str
    first_hour: int
    last_hour: int
    hours: bytes


@dataclass(frozen=True)
class Hint:
    """One signal for one adapter."""

    adapter: str
    signal: Signal
    share: float


class AdapterHabits:
    """What was learned of one pool's requests.

    Args:
        store: its records begin with t (tenants), m (models), h (hours).
    """

    def __init__(self, config: HabitConfig, store: Section) -> None:
        self._config = config
        self._store = store
        self._tenants: dict[str, TenantRecord] = {}
        self._models: dict[str, ModelRecord] = {}
        self._hours: dict[str, HoursRecord] = {}

    def __len__(self) -> int:
        return len(self._tenants) + len(self._models) + len(self._hours)

    def learn(self, at_ms: int, tenant: str, model: str, adapters: tuple[str, ...]) -> None:
        """Takes a request in."""
        fresh = self._learn_tenant(at_ms, tenant, adapters)
        self._learn_model(at_ms, tenant, model, bool(adapters), fresh)
        for adapter in adapters:
            self._learn_hour(at_ms // HOUR_MS, adapter)

    def hints(self, at_ms: int, tenant: str, model: str, adapters: tuple[str, ...]) -> Iterator[Hint]:
        """What the request that was learned just now makes likely."""
        known = self._tenants[tenant]
        for adapter in known.counts:
            if adapter not in known.now:
                yield Hint(adapter, "tenant", _share(known.counts[adapter], known.sessions))
        for one in adapters:
            for other, count in known.together.get(one, {}).items():
                if other not in known.now and one in known.counts:
                    yield Hint(other, "companion", _share(count, known.counts[one]))
        visited = self._models[model]
        waiting = sum(not asked and at_ms - last_ms < SESSION_GAP_MS for last_ms, asked in visited.visitors.values())
        for adapter, count in visited.counts.items():
            yield Hint(adapter, "load", 1.0 - (1.0 - _share(count, visited.visits)) ** waiting)

    def hour_hints(self, at_ms: int) -> Iterator[Hint]:
        """What is usually asked for in the hours that come, of every adapter that is known for a day or more."""
        now, ahead = at_ms // HOUR_MS, max(1, self._config.horizon_ms // HOUR_MS)
        window = (1 << ahead) - 1
        for adapter, known in self._hours.items():
            days = min(DAYS - 1, (now - known.first_hour) // 24)
            asked = int.from_bytes(known.hours, "little") << max(0, now - known.last_hour)
            # Bit i is i hours ago: the hours that come, `day` days before, end at bit 24 · day - ahead + 1.
            found = sum(1 for day in range(1, days + 1) if asked >> max(0, 24 * day - ahead + 1) & window)
            if found:
                yield Hint(adapter, "hour", _share(found, days))

    def restore(self, key: str, blob: bytes) -> None:
        """Takes back one record."""
        if key[0] == "t":
            tenant = unpack(blob, TenantRecord)
            self._tenants[tenant.tenant] = tenant
        elif key[0] == "m":
            model = unpack(blob, ModelRecord)
            self._models[model.model] = model
        else:
            hours = unpack(blob, HoursRecord)
            self._hours[hours.adapter] = hours

    def _learn_tenant(self, at_ms: int, tenant: str, adapters: tuple[str, ...]) -> tuple[str, ...]:
        """Of which adapters it is the first use in the tenant's session."""
        old = self._tenants.get(tenant) or TenantRecord(1, tenant, at_ms - SESSION_GAP_MS, 0.0, {}, {}, ())
        sessions, now = old.sessions, old.now
        counts, together = dict(old.counts), {name: dict(others) for name, others in old.together.items()}
        if at_ms - old.last_ms >= SESSION_GAP_MS:
            now, sessions = (), sessions + 1.0
            if sessions > self._config.aged_at:
                sessions, counts = sessions / 2, _halved(counts)
                together = {name: _halved(others) for name, others in together.items()}
        fresh = tuple(name for name in dict.fromkeys(adapters) if name not in now)
        for adapter in fresh:
            _count(counts, adapter, self._config.adapters_of_tenant)
            for before in now:
                _count(together.setdefault(before, {}), adapter, self._config.companions)
            now = (*now, adapter)[-self._config.adapters_of_tenant :]
        together = {name: others for name, others in together.items() if name in counts}
        new = TenantRecord(1, tenant, max(old.last_ms, at_ms), sessions, counts, together, now)
        self._tenants[tenant] = new
        self._store.put("t" + path(tenant), pack(new))
        if len(self._tenants) > self._config.max_tenants:
            gone = min(self._tenants, key=lambda name: (self._tenants[name].last_ms, name))
            del self._tenants[gone]
            self._store.remove("t" + path(gone))
        return fresh

    def _learn_model(self, at_ms: int, tenant: str, model: str, asked: bool, fresh: tuple[str, ...]) -> None:
        old = self._models.get(model) or ModelRecord(1, model, at_ms, 0.0, {}, {})
        visits, counts, visitors = old.visits, dict(old.counts), dict(old.visitors)
        last_ms, asked_before = visitors.pop(tenant, (at_ms - SESSION_GAP_MS, False))
        if at_ms - last_ms >= SESSION_GAP_MS:
            asked_before, visits = False, visits + 1.0
            if visits > self._config.aged_at:
                visits, counts = visits / 2, _halved(counts)
        visitors[tenant] = (max(last_ms, at_ms), asked or asked_before)
        if len(visitors) > self._config.visitors_of_model:
            del visitors[next(iter(visitors))]
        for adapter in fresh:
            _count(counts, adapter, self._config.adapters_of_model)
        new = ModelRecord(1, model, max(old.last_ms, at_ms), visits, counts, visitors)
        self._models[model] = new
        self._store.put("m" + path(model), pack(new))
        if len(self._models) > self._config.max_models:
            gone = min(self._models, key=lambda name: (self._models[name].last_ms, name))
            del self._models[gone]
            self._store.remove("m" + path(gone))

    def _learn_hour(self, hour: int, adapter: str) -> None:
        old = self._hours.get(adapter) or HoursRecord(1, adapter, hour, hour, b"\x01")
        newest = max(old.last_hour, hour)
        hours = int.from_bytes(old.hours, "little") << min(_HOURS, newest - old.last_hour)
        hours = (hours | 1 << min(_HOURS, newest - hour)) & _MASK
        new = HoursRecord(1, adapter, min(old.first_hour, hour), newest, hours.to_bytes(_HOURS // 8, "little"))
        self._hours[adapter] = new
        self._store.put("h" + path(adapter), pack(new))
        if len(self._hours) > self._config.max_adapters:
            gone = min(self._hours, key=lambda name: (self._hours[name].last_hour, name))
            del self._hours[gone]
            self._store.remove("h" + path(gone))


def _share(count: float, of: float) -> float:
    return min(1.0, (count + PRIOR) / (of + 1.0))


def _halved(counts: dict[str, float]) -> dict[str, float]:
    return {name: count / 2 for name, count in counts.items()}


def _count(counts: dict[str, float], adapter: str, most: int) -> None:
    """Counts one; beyond a bound the rarest other one is dropped."""
    counts[adapter] = counts.get(adapter, 0.0) + 1.0
    if len(counts) > most:
        del counts[min((name for name in counts if name != adapter), key=lambda name: (counts[name], name))]
