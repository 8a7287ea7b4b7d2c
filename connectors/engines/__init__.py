"""Serving engines behind one port: warm prefixes, load adapters, read gauges, follow KV events.

`base` is the contract; `vllm` and `sglang` speak HTTP and ZMQ, `tensorrt` HTTP alone, `fake` lives in memory;
`residency` turns events into "how much of this prompt is there".
"""

from connectors.engines.base import (
    Capabilities,
    ChatMessage,
    Engine,
    EngineKind,
    EngineMetrics,
    EventSource,
    Generated,
    LoadedAdapter,
    Messages,
    Prompt,
    Salt,
    Text,
    Tokens,
    Tool,
    Warmed,
)
from connectors.engines.events import BlocksCleared, BlocksRemoved, BlocksStored, Gap, KvEvent
from connectors.engines.histogram import Histogram

__all__ = [
    "BlocksCleared",
    "BlocksRemoved",
    "BlocksStored",
    "Capabilities",
    "ChatMessage",
    "Engine",
    "EngineKind",
    "EngineMetrics",
    "EventSource",
    "Gap",
    "Generated",
    "Histogram",
    "KvEvent",
    "LoadedAdapter",
    "Messages",
    "Prompt",
    "Salt",
    "Text",
    "Tokens",
    "Tool",
    "Warmed",
]
