"""Where a prefix may be warmed: on replicas of which it fills a block, and which have its adapter or are loading it."""

from __future__ import annotations

from analytics.memory import TargetMemory
from analytics.replicas import Ready
from schemas.canonical import adapter_key, adapter_parts

_NOWHERE: tuple[str, ...] = ()


def places(ready: Ready, tokens: float, scope: str, adapter: str, memory: TargetMemory, at_ms: int) -> Ready:
    """Replicas where a prefix may be warmed.

    A replica that lists adapters without this one would not be sent the prompt by an executor. Where the scope's load
    of it is under way the prefix waits for that (`analytics.after`). One that tells none may hold it.

    Args:
        adapter: as requests call it; empty for the base model, of which nothing more is asked.
    """
    fitting = ready.fitting(tokens)
    if not adapter:
        return fitting
    name, version = adapter_parts(adapter)
    load = memory.get(scope, adapter_key(name, version))
    loading = load.waiting if load is not None and load.live(at_ms) else _NOWHERE
    return fitting.listing((name, version), loading)
