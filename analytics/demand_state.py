"""What a demand shard writes down at each slide beside its panes, and which key of its store each blob has."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from analytics.demand_config import DemandConfig
from analytics.second_sight import Sight
from analytics.shard_log import ACCOUNTED, Fate
from schemas import BrokenConfiguration

STATE_VERSION = 1
META_KEY = -1
"""Of the blob with the shard's `Meta`. Panes have the keys from 0 on, asks and rewards those below."""

TERMS = tuple(fate.name.lower() for fate in ACCOUNTED)
"""Counters that the accounting is made of."""
SIGHT_COUNTERS = {sight: f"embed_{sight.name.lower()}" for sight in Sight if sight}


class Meta(Struct, array_like=True):
    """What a shard knows besides panes and asks, as of its last slide; only the timer may be newer."""

    version: int
    shards: int
    pane_ms: int
    next_timer_ms: int | None
    clock_ms: int
    published: int
    counters: dict[str, int]
    buckets: dict[str, int]


_decoder = msgspec.msgpack.Decoder(Meta)


def first_counters() -> dict[str, int]:
    """The counters of a shard that has seen nothing, without those of rewards."""
    counters = {fate.name.lower(): 0 for fate in (*ACCOUNTED, Fate.REWARD)}
    counters.update(dict.fromkeys(SIGHT_COUNTERS.values(), 0))
    counters.update(chains_dropped=0, capped=0)
    return counters


def first_meta(config: DemandConfig, counters: Mapping[str, int]) -> Meta:
    """Of a shard that has seen nothing."""
    return Meta(STATE_VERSION, config.shards, config.pane_ms, None, 0, 0, dict(counters), {})


def pack_meta(meta: Meta) -> bytes:
    """Its blob."""
    return msgspec.msgpack.encode(meta)


def read_meta(blob: bytes, config: DemandConfig) -> Meta:
    """What `pack_meta` wrote.

    Raises:
        BrokenConfiguration: it was written with another version, shard count or pane length.
    """
    meta = _decoder.decode(blob)
    for what, found, wanted in (
        ("state version", meta.version, STATE_VERSION),
        ("shards", meta.shards, config.shards),
        ("pane_ms", meta.pane_ms, config.pane_ms),
    ):
        if found != wanted:
            raise BrokenConfiguration(
                f"the state of demand was written with {what} {found}, this job has {wanted}: "
                "start it without the savepoint, or with the old setting"
            )
    return meta


def asks_key(slide: int) -> int:
    """Key of a slide's asks among the blobs; applied to a key, the slide."""
    return META_KEY - 1 - slide
