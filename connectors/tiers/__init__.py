"""KV tiers below an engine: host memory, and storage under it, that a prefix is fetched from instead of computed again.

`base` is the contract, `lmcache` speaks to a node of LMCache, `fake` answers as such a node in memory.
"""

from connectors.tiers.base import Fetched, KvTier
from connectors.tiers.lmcache import LmcacheNode
from connectors.tiers.settings import LmcacheSettings

__all__ = ["Fetched", "KvTier", "LmcacheNode", "LmcacheSettings"]
