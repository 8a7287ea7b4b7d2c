"""Does every record of llm.requests lie in exactly one drawer? The sum over shards, and the check (DESIGN §3.2)."""

from __future__ import annotations

from dataclasses import dataclass

from schemas import Accounting, WindowStats


@dataclass(frozen=True)
class Balance:
    """Where the records of llm.requests went, over all shards.

    Attributes:
        in_panes: requests that the published panes of dimension query show; must equal `counted`.
    """

    counted: int = 0
    second_phase: int = 0
    not_demand: int = 0
    late: int = 0
    duplicate: int = 0
    dead: int = 0
    in_panes: int = 0

    @property
    def read(self) -> int:
        """Records that the shards have seen."""
        return self.counted + self.second_phase + self.not_demand + self.late + self.duplicate + self.dead

    def missing(self, written: int) -> int:
        """Records of the topic (tombstones apart) that no shard has seen yet; negative when some were counted twice."""
        return written - self.read

    def holds(self, written: int) -> bool:
        """Whether all records of the topic are accounted for, once each, and the panes agree."""
        return self.missing(written) == 0 and self.in_panes == self.counted


class Ledger:
    """Reads insights in any order and with repetitions: the greatest revision of each shard and pane holds."""

    def __init__(self) -> None:
        self._shards: dict[int, Accounting] = {}
        self._panes: dict[tuple[str, int, int], tuple[int, int]] = {}

    def take(self, insight: Accounting | WindowStats) -> None:
        """Reads one insight. Of equal revisions the later one holds."""
        if isinstance(insight, Accounting):
            held = self._shards.get(insight.shard)
            if held is None or insight.revision >= held.revision:
                self._shards[insight.shard] = insight
        elif insight.dimension == "query":
            key = (insight.scope, insight.shard, insight.pane_start_ms)
            self._panes[key] = max(self._panes.get(key, (0, 0)), (insight.revision, insight.events))

    @property
    def balance(self) -> Balance:
        """The sums as of now."""
        shards = self._shards.values()
        return Balance(
            counted=sum(each.counted for each in shards),
            second_phase=sum(each.second_phase for each in shards),
            not_demand=sum(each.not_demand for each in shards),
            late=sum(each.late for each in shards),
            duplicate=sum(each.duplicate for each in shards),
            dead=sum(each.dead for each in shards),
            in_panes=sum(events for _, events in self._panes.values()),
        )
