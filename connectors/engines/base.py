"""The engine port: what Stoker asks of a serving engine, and what it may not expect.

One `Engine` object stands for one replica. Everything that the methods promise is held by
`tests/contracts/test_engine_contract.py`, which runs against the fake, the simulator in all its dialects and a real
vLLM alike.

Errors, for every method: `TransientFault` when the engine did not answer in time, refused the connection, asked to come
back later (503 at its queue limit) or failed inside (500); `RefusedCommand` when it understood and said no (a 4xx: an
unknown model or adapter, a prompt that is too long, a route that its operator switched off). No other exception leaves
a method, except cancellation.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypedDict

from connectors.engines.events import KvEvent
from connectors.engines.histogram import Histogram

EngineKind = Literal["vllm", "sglang", "tensorrt_llm"]
TOP_PRIORITY = 999
"""Priorities of a WarmupCommand are 0 to this, higher first."""
SALT_CHARS = 128
SALT_FORBIDDEN = frozenset("@/\\\0")


class ChatMessage(TypedDict):
    """One message of a chat prompt, oldest first in a sequence."""

    role: str
    content: str


Tool = Mapping[str, Any]


@dataclass(frozen=True)
class Salt:
    """A cache salt: who knows it can find out what a tenant asked. It shows up in no repr and no log."""

    value: str = field(repr=False)

    @property
    def well_formed(self) -> bool:
        """Whether every engine takes it: 1 to 128 characters without '@', '/', '\\' and NUL, which is vLLM's rule. An
        empty one is no salt at all to SGLang, and would share what others left."""
        return 1 <= len(self.value) <= SALT_CHARS and not SALT_FORBIDDEN & set(self.value)


@dataclass(frozen=True)
class Messages:
    """A prompt as chat messages, rendered by the engine's own template."""

    messages: Sequence[ChatMessage] = field(repr=False)
    tools: Sequence[Tool] = field(default=(), repr=False)


@dataclass(frozen=True)
class Tokens:
    """A prompt as token ids, used as they are."""

    ids: Sequence[int] = field(repr=False)


@dataclass(frozen=True)
class Text:
    """A prompt as text that is already rendered."""

    text: str = field(repr=False)


Prompt = Messages | Tokens | Text


@dataclass(frozen=True)
class Warmed:
    """What a one-token request found and left behind.

    Args:
        prompt_tokens: length of the prompt as the engine counted it.
        cached_tokens: how many of them were resident before; None where the engine gives no usage details.
        created_tokens: how many the request added as the engine reports it; None where it does not (vLLM's
            `/v1/completions`, SGLang). vLLM counts the last block of a block-aligned prompt as created each time,
            because it always recomputes the last token: "nothing new" means at most one block here.
    """

    prompt_tokens: int
    cached_tokens: int | None
    created_tokens: int | None


@dataclass(frozen=True)
class Generated:
    """An answer to a chat.

    Args:
        text: empty where the engine said nothing.
        finish_reason: as the engine tells: `stop` where it ended by itself, `length` where it was cut off.
        cached_tokens: how many of `prompt_tokens` were resident; None where the engine gives no usage details.
    """

    text: str = field(repr=False)
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int | None
    answer_tokens: int

    @property
    def whole(self) -> bool:
        """Whether it says something, to its own end."""
        return bool(self.text.strip()) and self.finish_reason == "stop"


@dataclass(frozen=True)
class LoadedAdapter:
    """A name that the engine would accept as a model. A registry entry: it says nothing about GPU slots."""

    name: str
    path: str
    parent: str


@dataclass(frozen=True)
class EventSource:
    """Where one data-parallel rank publishes its KV events, as the engine spells it."""

    rank: int
    endpoint: str
    replay_endpoint: str | None
    topic: str


@dataclass(frozen=True)
class Capabilities:
    """What this replica can do, probed once.

    Args:
        engine: family, `vllm`, `sglang`, `tensorrt_llm` or `fake`.
        version: as the engine says.
        models: base models it serves, without adapters.
        runtime_adapters: adapters can be loaded and unloaded by a call, without harm to requests in flight.
        adapter_pins: an adapter can be kept from leaving its slot.
        usage_details: `Warmed.cached_tokens` is given for every request; without it a warm-up is `unverified`.
        sleep: it can be asked whether it sleeps (vLLM's development mode).
        block_tokens: tokens a KV block or page; nothing shorter can ever be a hit. None where it is not told.
        num_blocks: blocks of the pool; None where it is not told.
        max_prompt_tokens: longest prompt it takes; None where it is not told.
        event_sources: one a data-parallel rank, empty without KV events.
    """

    engine: str
    version: str
    models: tuple[str, ...]
    runtime_adapters: bool
    adapter_pins: bool
    usage_details: bool
    sleep: bool
    block_tokens: int | None
    num_blocks: int | None
    max_prompt_tokens: int | None
    event_sources: tuple[EventSource, ...]


@dataclass(frozen=True)
class EngineMetrics:
    """A replica's gauges and counters at one moment.

    What an engine does not tell is 0, or None where that is a value. `kv_usage` is 0..1 and counts blocks of running
    requests only: idle cached blocks read as free, so a warm-up can destroy a hot cache while it stays at 0 (vLLM
    #20302). Counters only grow within one process of the engine.

    Args:
        busy_adapters: names with requests that wait or run. Activity, not residency: idle ones are not named (#45325).
        adapter_used_s: when each name was last seen running, on the engine's clock, as far back as it remembers.
        adapter_slots: adapters that the GPU holds at once; None where it is not told.
    """

    running: int
    waiting: int
    kv_usage: float
    prefix_query_tokens: int
    prefix_hit_tokens: int
    preemptions: int
    rejections: int
    prompt_tokens: int
    sleeping: bool | None
    blocks_total: int | None
    block_tokens: int | None
    ttft_s: Histogram
    busy_adapters: frozenset[str] = frozenset()
    adapter_used_s: Mapping[str, float] = field(default_factory=dict)
    adapter_slots: int | None = None


class Engine(Protocol):
    """One replica of a serving engine.

    All methods are safe to call concurrently from one event loop. None blocks the loop; each waits at most its
    `timeout_s` (or the constructor's default), then closes its connection, which cancels the work at the engine.
    An answer may get lost after the engine did the work: warm-ups and loads are therefore written so that asking again
    is harmless. `request_id` names the request in the engine's log, where it takes one; it is not a key for
    deduplication.
    """

    async def capabilities(self) -> Capabilities:
        """Probe routes and switches, once; later calls return the first answer, until a connection is refused: what
        listens there next may be another engine. Costs one token ("Hello")."""
        ...

    async def warm_messages(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[Tool] | None = None,
        adapter: str | None = None,
        salt: Salt | None = None,
        request_id: str,
        priority: int | None = None,
        timeout_s: float | None = None,
    ) -> Warmed:
        """Make the prefix of these messages resident by a one-token chat completion without a generation prompt.

        Afterwards a chat that starts with the same messages, tools, adapter and salt finds every full block of them,
        unless the engine evicted it meanwhile. Not promised: that it stays (plain LRU), or that nothing else had to
        leave for it. There is no undo: no engine has a call to remove one prefix.

        Args:
            adapter: name of a loaded adapter; None for the base model. Look at `adapters` first: of one that is not
                loaded a request is refused, but vLLM with a resolver plugin loads it.
            priority: 0-999, higher first, as in a WarmupCommand; translated to the engine's sense. Advice only: an
                engine without priority scheduling ignores it.
        """
        ...

    async def warm_tokens(
        self,
        model: str,
        tokens: Sequence[int] | str,
        *,
        adapter: str | None = None,
        salt: Salt | None = None,
        request_id: str,
        priority: int | None = None,
        timeout_s: float | None = None,
    ) -> Warmed:
        """The same for exact token ids, or for text that is already rendered. `created_tokens` may be None."""
        ...

    async def generate(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[Tool] | None = None,
        adapter: str | None = None,
        salt: Salt | None = None,
        max_tokens: int,
        request_id: str,
        priority: int | None = None,
        timeout_s: float | None = None,
    ) -> Generated:
        """Answer a chat greedily (temperature 0), in words only: tools are shown and none is called.

        Arguments as of `warm_messages`. Asked again it computes again, and may say something else: greedy decoding is
        not the same in every batch.
        """
        ...

    async def resident(
        self,
        model: str,
        prompt: Prompt,
        *,
        adapter: str | None = None,
        salt: Salt | None = None,
        request_id: str,
        timeout_s: float | None = None,
    ) -> Warmed:
        """Tell how much of a prompt is resident by asking for one token.

        Not neutral: it refreshes the LRU age of what it finds and computes what it does not find. Ask only about what
        should stay, and where KV events are available ask them.
        """
        ...

    async def probe(self, model: str | None, *, request_id: str, timeout_s: float | None = None) -> None:
        """One token for "Hello" from a model or a loaded adapter; the answer is thrown away. None: its base model.

        Whatever is built at the first request is built afterwards (kernels, an adapter's slot on the GPU), so no user
        waits for it. While the engine sleeps this waits as any request does.
        """
        ...

    async def tokenize(self, model: str, prompt: Messages | Text, *, timeout_s: float | None = None) -> tuple[int, ...]:
        """The ids a warm-up of this prompt would use: the key to finding its blocks in the KV events."""
        ...

    async def load_adapter(self, name: str, path: str, *, pinned: bool = False, timeout_s: float | None = None) -> None:
        """Load an adapter under a name. It takes a GPU slot, at once or with its first request, and may push another
        one out.

        Loading a name that is already loaded from the same path is a success; from another path it is refused: use a
        new name for every version, since cached prefixes are keyed by name (vLLM #42125).

        Args:
            pinned: load it so that `pin_adapter` can follow: SGLang pins only what it loads. One that is loaded already
                stays as it is.

        Raises:
            RefusedCommand: with reason `adapter_missing` where nothing lies at the path and the engine tells this from
                other causes (SGLang and TensorRT-LLM do not), else because of its rank, its shape, or for want of a
                slot. A load that is given up may have come to its end at the engine.
        """
        ...

    async def pin_adapter(self, name: str, *, timeout_s: float | None = None) -> None:
        """Keep a loaded adapter in its slot until it is unloaded. Refused where `adapter_pins` is False, for an unknown
        name or one that was not loaded to be pinned, and when every slot is pinned."""
        ...

    async def unload_adapter(self, name: str, *, timeout_s: float | None = None) -> None:
        """Take a name away; an unknown name is a success. From then on a request with it is refused. Frees no memory
        (vLLM #54839), and requests in flight with that adapter may fail (vLLM) or hold the call up (SGLang): drain
        first."""
        ...

    async def adapters(self) -> tuple[LoadedAdapter, ...]:
        """Names that are loaded now. TensorRT-LLM lists none: there it is those that this object has loaded."""
        ...

    async def is_sleeping(self) -> bool:
        """Whether it sleeps: a sleeping engine looks healthy, and every request waits until somebody wakes it. False
        where it cannot be asked."""
        ...

    async def wake(self, *, timeout_s: float | None = None) -> None:
        """Bring weights back and let waiting requests go on; returns when it takes requests, at once if it does
        already. What was cached before it slept is gone. Refused where the engine has no such call."""
        ...

    async def metrics(self) -> EngineMetrics:
        """Gauges and counters. Costs the engine a few ms: ask about once a second."""
        ...

    def kv_events(self) -> AsyncGenerator[KvEvent, None]:
        """Follow stored and removed blocks, until the generator is closed.

        It begins with what the engine still remembers: after `BlocksCleared` where that is everything since it started,
        after a `Gap` where it is not. Within one rank in the engine's order. Lost messages are replayed if the engine
        still has them, otherwise a further `Gap` tells that everything known about this rank is void; so does a new
        process at the other end. A reset may be told only with the next block that is stored (vLLM). Ends at once
        where the engine has no events.
        """
        ...

    async def reset_prefix_cache(self) -> bool:
        """Forget all idle prefixes: for tests and benches. False while requests still hold blocks. Refused where the
        engine has no such call (vLLM outside its development mode)."""
        ...

    async def close(self) -> None:
        """Close connections. Calls that still wait end with TransientFault; later calls are a mistake."""
        ...
