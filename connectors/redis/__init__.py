"""What Stoker keeps in Redis: blobs, vectors, the ledger, leases and the caches that gateways read.

Jobs use the blocking ports, the executor the asyncio ones; `fake` keeps all of them in one memory. Every key is built
in `keys`, where a scope cannot reach another scope's data.
"""

from connectors.redis.base import (
    Already,
    AsyncBlobs,
    AsyncVectors,
    Blobs,
    Brakes,
    EmbeddingCache,
    EmbeddingEntry,
    Lease,
    Leases,
    Ledger,
    LedgerState,
    Started,
    Values,
    Vectors,
)
from connectors.redis.blobs import RedisAsyncBlobs, RedisBlobs
from connectors.redis.brakes import RedisBrakes
from connectors.redis.client import async_client, client_options, sync_client
from connectors.redis.embedding_cache import RedisEmbeddingCache
from connectors.redis.keys import embedding_cache_name, semantic_cache_name
from connectors.redis.leases import RedisLeases
from connectors.redis.ledger import RedisLedger
from connectors.redis.semantic import Answer, CacheName, HeldAnswer, SemanticCache
from connectors.redis.semantic_cache import RedisSemanticCache
from connectors.redis.values import RedisValues
from connectors.redis.vectors import RedisAsyncVectors, RedisVectors

__all__ = [
    "Already",
    "Answer",
    "AsyncBlobs",
    "AsyncVectors",
    "Blobs",
    "Brakes",
    "CacheName",
    "EmbeddingCache",
    "EmbeddingEntry",
    "HeldAnswer",
    "Lease",
    "Leases",
    "Ledger",
    "LedgerState",
    "RedisAsyncBlobs",
    "RedisAsyncVectors",
    "RedisBlobs",
    "RedisBrakes",
    "RedisEmbeddingCache",
    "RedisLeases",
    "RedisLedger",
    "RedisSemanticCache",
    "RedisValues",
    "RedisVectors",
    "SemanticCache",
    "Started",
    "Values",
    "Vectors",
    "async_client",
    "client_options",
    "embedding_cache_name",
    "semantic_cache_name",
    "sync_client",
]
