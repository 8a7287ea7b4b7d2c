"""Which adapters a replica probably holds on its GPU: an estimate, since engines list names and not residency. Pure.

An engine's list is a registry (vLLM #45325), and unloading takes only the name away (vLLM #54839). Its slots are kept
by LRU, its metrics tell when each adapter was last seen running, and a load takes a slot at once. So the last `slots`
adapters by use or load are taken to be on the GPU, whether they are still listed or not. Requests of a single token are
over before vLLM's metrics show them: of those only our own are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from schemas.canonical import adapter_parts
from schemas.replica_sample import ResidentAdapter


class AdapterLevels:
    """The order of use of one replica's adapters, in one life of its engine."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[float, int]] = {}
        self._seen_s: dict[str, float] = {}
        self._listed: frozenset[str] | None = None
        self._looks = 0

    def restart(self) -> None:
        """The engine lives anew: nothing was used yet."""
        self._used.clear()
        self._seen_s.clear()
        self._listed = None

    def touched(self, name: str, at_s: float) -> None:
        """One token was asked of it: too short for the engine's metrics to show."""
        self._looks += 1
        self._used[name] = max((at_s, self._looks), self._used.get(name, (0.0, 0)))

    def look(self, names: Sequence[str], used_s: Mapping[str, float], slots: int | None) -> tuple[ResidentAdapter, ...]:
        """The adapters that are listed now, each with its level.

        Args:
            names: as the engine lists them.
            used_s: time of the last use of each that was ever seen busy, on the engine's clock.
            slots: adapters that the GPU holds at once; without it every level is `named`.
        """
        self._looks += 1
        for name, at_s in used_s.items():
            # Only news: the engine goes on telling of adapters that have left their slots long ago.
            if at_s > self._seen_s.get(name, 0.0) and at_s > self._used.get(name, (0.0, 0))[0]:
                self._used[name] = (at_s, self._looks)
        self._seen_s = dict(used_s)
        if self._listed is not None:
            latest_s = max((at_s for at_s, _ in self._used.values()), default=0.0)
            for name in names:
                if name not in self._listed:  # loaded since the last look, after whatever was used before that
                    self._used[name] = (latest_s, self._looks)
        for name in names:
            self._used.setdefault(name, (0.0, 0))
        self._listed = frozenset(names)
        by_age = sorted(self._used, key=lambda name: self._used[name])
        on_gpu = set() if slots is None else set(by_age[-slots:])
        for forgotten in set(by_age) - set(names) - on_gpu:
            del self._used[forgotten]
        return tuple(
            ResidentAdapter(*adapter_parts(name), level="gpu" if name in on_gpu else "named") for name in names
        )
