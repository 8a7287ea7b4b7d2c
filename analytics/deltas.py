"""Chains that a shard saw since its last slide, added up until the slide sends them to the prefix tree."""

from __future__ import annotations

from collections.abc import Iterator

from analytics.envelopes import Chain, PrefixDelta, Root
from analytics.facts import MICRO, unpack_chain, unpack_names
from analytics.panes import Place


class PendingChains:
    """Sums per chain, keyed by the fact's own bytes so that the common event costs one look-up.

    Sums are whole numbers and what is sent is sorted, so the order of events does not show.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._chains: dict[bytes, list[int]] = {}
        self._requests: dict[Place, int] = {}

    def add(self, place: Place, names_and_chain: bytes, names_bytes: int, weight: int, at_ms: int) -> bool:
        """Counts a request with a chain; False when there is no room for a chain that is new in this slide.

        Chains that had room once have it together in any order, so a replay adds just those.

        Args:
            names_and_chain: both parts of the fact.
            names_bytes: where the chain begins.
        """
        self._requests[place] = self._requests.get(place, 0) + weight
        held = self._chains.get(names_and_chain)
        if held is not None:
            held[0] += weight
            if at_ms > held[1]:
                held[1] = at_ms
            return True
        if self._bytes + len(names_and_chain) > self._max_bytes:
            return False
        self._bytes += len(names_and_chain)
        self._chains[names_and_chain] = [weight, at_ms, names_bytes]
        return True

    def add_request(self, place: Place, weight: int) -> None:
        """Counts a request whose chain had no room."""
        self._requests[place] = self._requests.get(place, 0) + weight

    def drain(self, shard: int, at_ms: int) -> Iterator[PrefixDelta]:
        """One delta per place, in the order of places; nothing is pending afterwards."""
        roots: dict[Place, dict[Root, int]] = {}
        chains: dict[Place, list[Chain]] = {}
        heads: dict[bytes, tuple[int, list[Chain]]] = {}
        for key in sorted(self._chains):
            weight, last_ms, names_bytes = self._chains[key]
            head = key[:names_bytes]
            found = heads.get(head)
            if found is None:
                names = unpack_names(head)
                place = (names.scope, names.pool)
                root = Root(names.model, names.adapter, names.template_sha, names.tools_sha, names.salt_ref)
                known = roots.setdefault(place, {})
                found = heads[head] = known.setdefault(root, len(known)), chains.setdefault(place, [])
            hashes, tokens, roles = unpack_chain(key[names_bytes:])
            found[1].append(Chain(found[0], hashes, tokens, roles, weight / MICRO, last_ms))
        requests = self._requests
        self._bytes, self._chains, self._requests = 0, {}, {}
        for place in sorted(requests):
            yield PrefixDelta(
                place[0],
                place[1],
                shard,
                at_ms,
                tuple(roots.get(place, ())),
                tuple(chains.get(place, ())),
                requests[place] / MICRO,
            )
