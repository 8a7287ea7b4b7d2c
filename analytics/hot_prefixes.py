"""The hot prefixes of a pool by scope, as the prefix trees sent them last, and what a planner notes beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from analytics.crowds import leading
from analytics.envelopes import Candidates, Root
from analytics.memory import TargetMemory
from analytics.prefix_look import UNKNOWN_MS, Columns, Hot
from analytics.prefix_nodes import HASH_BYTES
from schemas.canonical import prefix_key

_NONE: Mapping[str, Hot] = {}
Raised = tuple[frozenset[str], float]
"""Families of prefixes, by hash, and by which factor they are asked for more likely."""
NOT_RAISED: Raised = (frozenset(), 1.0)


class HotPrefixes:
    """Hot prefixes by scope.

    Args:
        memory: what is remembered of targets; of some of them a prefix is hot.
    """

    def __init__(self, memory: TargetMemory) -> None:
        self._memory = memory
        self._hot: dict[str, dict[str, Hot]] = {}
        self._columns: dict[str, Columns] = {}
        self._roots: dict[str, frozenset[Root]] = {}
        self._at_ms: dict[str, int] = {}
        self._raised: Mapping[str, Raised] = {}
        self.version = 0
        """Grows when a scope comes or goes."""

    def __len__(self) -> int:
        return len(self._hot)

    @property
    def scopes(self) -> frozenset[str]:
        """Scopes of which anything is hot."""
        return frozenset(self._hot)

    def get(self, scope: str, key: str) -> Hot | None:
        """The hot prefix of a target, if it is one."""
        return self._hot.get(scope, _NONE).get(key)

    def columns(self) -> Iterable[tuple[str, Columns]]:
        """Each scope's hot prefixes side by side, with the notes."""
        return self._columns.items()

    def roots(self, scope: str) -> frozenset[Root]:
        """What a scope's hot prefixes start from."""
        return self._roots[scope]

    def at_ms(self, scope: str) -> int:
        """Event time of a scope's last candidates; 0 where nothing is hot."""
        return self._at_ms.get(scope, 0)

    def family_of(self, scope: str, root: Root, hashes: bytes) -> str:
        """Unit of a prefix that the tree has not named, by the trunk that hot prefixes of its scope show.

        A candidate whose trunk it shares tells where families begin; without one its first segment is its family.
        """
        depth = 0
        for hot in self._hot.get(scope, _NONE).values():
            candidate = hot.candidate
            trunk = candidate.hashes.find(bytes.fromhex(candidate.unit))
            if hot.root == root and trunk % HASH_BYTES == 0 and hashes.startswith(candidate.hashes[: max(0, trunk)]):
                depth = max(depth, trunk)
        depth = min(depth, len(hashes) - HASH_BYTES)
        return hashes[depth : depth + HASH_BYTES].hex()

    def take(self, found: Candidates) -> None:
        """Replaces a scope's hot prefixes."""
        if not found.candidates:
            self.drop(found.scope)
            return
        hot: dict[str, Hot] = {}
        for candidate in found.candidates:
            key = prefix_key(candidate.hashes[-HASH_BYTES:].hex())
            # The same segments under two salts are one target: the hotter one stands for both.
            if key not in hot:
                hot[key] = Hot(candidate, found.roots[candidate.root], sum(candidate.tokens), len(hot))
        self.version += found.scope not in self._hot
        columns = Columns.of(hot)
        self._keep_notes(found.scope, columns)
        self._hot[found.scope] = hot
        self._columns[found.scope] = self._likely(found.scope, columns, hot) if self._raised else columns
        self._roots[found.scope] = frozenset([each.root for each in hot.values()])
        self._at_ms[found.scope] = found.at_ms

    def raise_families(self, raised: Mapping[str, Raised]) -> list[str]:
        """From now on what goes through these families of these scopes is asked for so many times as likely.

        Returns:
            scopes of which that is news.
        """
        before, self._raised = self._raised, raised
        changed = [scope for scope in before.keys() | raised.keys() if before.get(scope) != raised.get(scope)]
        for scope in changed:
            if scope in self._hot:
                self._columns[scope] = self._likely(scope, self._columns[scope], self._hot[scope])
        return changed

    def drop(self, scope: str) -> None:
        """Nothing of a scope is hot any more; harmless when nothing was."""
        self.version += self._hot.pop(scope, None) is not None
        self._columns.pop(scope, None)
        self._roots.pop(scope, None)
        self._at_ms.pop(scope, None)

    def unconfirmed(self, before_ms: int) -> list[str]:
        """Scopes whose candidates are older."""
        return [scope for scope, seen_ms in self._at_ms.items() if seen_ms < before_ms]

    def changed(self, scope: str, key: str) -> None:
        """Something else is remembered of a target than what was noted of it."""
        hot = self.get(scope, key)
        if hot is not None:
            self._columns[scope].free_ms[hot.place] = UNKNOWN_MS

    def changed_adapters(self) -> list[str]:
        """Replicas have other adapters than before: of no prefix under one holds what was noted.

        Returns:
            scopes that have such prefixes.
        """
        scopes = [scope for scope, roots in self._roots.items() if any(root.adapter for root in roots)]
        for scope in scopes:
            columns = self._columns[scope]
            for place, root in enumerate(columns.roots):
                if root.adapter:
                    columns.free_ms[place] = UNKNOWN_MS
        return scopes

    def changed_all(self) -> None:
        """What is remembered means something else than before: of no target holds what was noted."""
        for target in self._memory:
            self.changed(target.scope, target.key)

    def _likely(self, scope: str, columns: Columns, hot: Mapping[str, Hot]) -> Columns:
        """A scope's columns with the chances that its crowds leave, above 1 where that is more than certain."""
        families, factor = self._raised.get(scope, NOT_RAISED)
        chances = [each.candidate.p_asked for each in hot.values()]
        if families:
            crowded = [not families.isdisjoint(leading(each.candidate.hashes)) for each in hot.values()]
            chances = [chance * factor if own else chance for chance, own in zip(chances, crowded, strict=True)]
        return columns._replace(p_asked=np.array(chances, dtype=np.float64))

    def _keep_notes(self, scope: str, columns: Columns) -> None:
        """What stays hot keeps its note; of what was not hot nothing was noted."""
        before = self._hot.get(scope, _NONE)
        noted = self._columns[scope].free_ms.tolist() if before else []
        for place, key in enumerate(columns.keys):
            known = before.get(key)
            if known is not None:
                columns.free_ms[place] = noted[known.place]
            elif self._memory.get(scope, key) is not None:
                columns.free_ms[place] = UNKNOWN_MS
