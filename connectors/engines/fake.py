"""An engine in memory with the same contract: small, deterministic, and able to fail on request."""

from __future__ import annotations

import asyncio
import itertools
from array import array
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from zlib import crc32

from connectors.engines.base import (
    Capabilities,
    ChatMessage,
    EngineMetrics,
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
from connectors.engines.events import BlocksCleared, BlocksRemoved, BlocksStored, KvEvent
from connectors.engines.histogram import Histogram
from schemas.errors import RefusedCommand, StokerError, TransientFault

DEFAULT_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class FakeRequest:
    """One request that a fake engine answered. `created_tokens` counts what was not resident before."""

    request_id: str
    model: str
    prompt_tokens: int
    cached_tokens: int
    created_tokens: int
    priority: int | None
    salted: bool


@dataclass
class FakeEngine:
    """One replica without a process.

    Args:
        model: the base model.
        block_tokens, num_blocks: geometry of its cache; idle blocks leave by LRU.
        max_prompt_tokens: longer prompts are refused.
        adapter_paths: paths where an adapter can be found; None accepts any path.
        adapter_slots: adapters on its GPU at once; the least recently used leaves. None for no end of them.
        runtime_adapters: whether adapters can be loaded by a call.
        pins: whether it can pin an adapter.
        resolves: whether a request loads the adapter that it names, as vLLM does with a resolver plugin.
        delay_s: time each request takes.
        answer: what it generates, whatever it is asked.
        faults: errors that the next calls raise, first in first out.
    """

    model: str = "tiny"
    block_tokens: int = 16
    num_blocks: int = 1024
    max_prompt_tokens: int = 16_384
    adapter_paths: frozenset[str] | None = None
    adapter_slots: int | None = None
    runtime_adapters: bool = True
    pins: bool = True
    resolves: bool = False
    delay_s: float = 0.0
    answer: str = "An answer."
    faults: deque[StokerError] = field(default_factory=deque)
    requests: list[FakeRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._adapters: dict[str, LoadedAdapter] = {}
        self._slots: OrderedDict[str, None] = OrderedDict()
        self._pinned: set[str] = set()
        self._busy: list[str] = []
        self._used: dict[str, float] = {}
        self._history: list[KvEvent] = [BlocksCleared()]
        self._changed = asyncio.Condition()
        self._awake = asyncio.Event()
        self._awake.set()
        self._running = 0
        self._closed = False
        self._query_tokens = 0
        self._hit_tokens = 0

    async def capabilities(self) -> Capabilities:
        """Everything is switched on; KV events need no endpoint."""
        self._fail_if_told()
        return Capabilities(
            engine="fake",
            version="0",
            models=(self.model,),
            runtime_adapters=self.runtime_adapters,
            adapter_pins=self.pins,
            usage_details=True,
            sleep=True,
            block_tokens=self.block_tokens,
            num_blocks=self.num_blocks,
            max_prompt_tokens=self.max_prompt_tokens,
            event_sources=(),
        )

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
        """As the contract says; created tokens are told."""
        ids = _message_ids(messages, tools)
        return self._told(await self._request(model, ids, adapter, salt, request_id, priority, timeout_s), True)

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
        """`answer`, as many words of it as there may be tokens."""
        ids = _message_ids(messages, tools)
        request = await self._request(model, ids, adapter, salt, request_id, priority, timeout_s)
        words = self.answer.split()
        return Generated(
            text=" ".join(words[:max_tokens]),
            finish_reason="stop" if len(words) <= max_tokens else "length",
            prompt_tokens=request.prompt_tokens,
            cached_tokens=request.cached_tokens,
            answer_tokens=min(len(words), max_tokens),
        )

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
        """As the contract says; like vLLM it does not tell created tokens here."""
        ids = _text_ids(tokens) if isinstance(tokens, str) else tuple(tokens)
        return self._told(await self._request(model, ids, adapter, salt, request_id, priority, timeout_s), False)

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
        """A one-token request, as with a real engine."""
        ids = tuple(prompt.ids) if isinstance(prompt, Tokens) else await self.tokenize(model, prompt)
        request = await self._request(model, ids, adapter, salt, request_id, None, timeout_s)
        return self._told(request, isinstance(prompt, Messages))

    async def probe(self, model: str | None, *, request_id: str, timeout_s: float | None = None) -> None:
        """A request of one word."""
        adapter = model if model in self._adapters else None
        await self._request(model or self.model, _text_ids("Hello"), adapter, None, request_id, None, timeout_s)

    async def tokenize(self, model: str, prompt: Messages | Text, *, timeout_s: float | None = None) -> tuple[int, ...]:
        """One id a word, and one at each end of a message."""
        del timeout_s  # nothing waits here
        self._fail_if_told()
        self._known(model)
        return _text_ids(prompt.text) if isinstance(prompt, Text) else _message_ids(prompt.messages, prompt.tools)

    async def load_adapter(self, name: str, path: str, *, pinned: bool = False, timeout_s: float | None = None) -> None:
        """Accept a name. Whatever is loaded can be pinned later."""
        del pinned, timeout_s
        self._fail_if_told()
        known = self._adapters.get(name)
        if known is not None and known.path != path:
            raise RefusedCommand(f"adapter {name} is already loaded from another path: give each version a new name")
        if not name or name == self.model:
            raise RefusedCommand(f"an adapter cannot be called {name!r}")
        if self.adapter_paths is not None and path not in self.adapter_paths:
            raise RefusedCommand(f"no adapter {name!r} at {path}", "adapter_missing")
        if known is None:
            self._take_slot(name)
        self._adapters[name] = LoadedAdapter(name, path, self.model)

    def _take_slot(self, name: str) -> None:
        """Puts an adapter on the GPU, in place of the least recently used that no request needs and nobody pinned."""
        self._slots[name] = None
        self._slots.move_to_end(name)
        if self.adapter_slots is None or len(self._slots) <= self.adapter_slots:
            return
        held = {*self._busy, *self._pinned, name}
        victim = next((other for other in self._slots if other not in held), None)
        if victim is None:
            del self._slots[name]
            raise RefusedCommand(f"all {self.adapter_slots} adapter slots are in use")
        del self._slots[victim]

    @property
    def on_gpu(self) -> tuple[str, ...]:
        """Adapters in a slot, least recently used first."""
        return tuple(self._slots)

    async def unload_adapter(self, name: str, *, timeout_s: float | None = None) -> None:
        """Forget a name."""
        del timeout_s
        self._fail_if_told()
        self._adapters.pop(name, None)
        self._slots.pop(name, None)
        self._pinned.discard(name)

    async def pin_adapter(self, name: str, *, timeout_s: float | None = None) -> None:
        """Keep it in its slot, as long as another slot is left for the rest."""
        del timeout_s
        self._fail_if_told()
        if not self.pins or name not in self._adapters:
            raise RefusedCommand(f"adapter {name} cannot be pinned: unknown here, or this engine has no pins")
        if self.adapter_slots is not None and len({*self._pinned, name}) >= self.adapter_slots:
            raise RefusedCommand(f"all of {self.adapter_slots} adapter slots would be pinned")
        self._take_slot(name)
        self._pinned.add(name)

    async def adapters(self) -> tuple[LoadedAdapter, ...]:
        """Names that are loaded."""
        self._fail_if_told()
        return tuple(self._adapters.values())

    async def is_sleeping(self) -> bool:
        """Whether `fall_asleep` was called last."""
        self._fail_if_told()
        return not self._awake.is_set()

    async def wake(self, *, timeout_s: float | None = None) -> None:
        """Requests go on."""
        del timeout_s
        self._fail_if_told()
        self._awake.set()

    async def metrics(self) -> EngineMetrics:
        """Counters of what it answered."""
        self._fail_if_told()
        return EngineMetrics(
            running=self._running,
            waiting=0,
            kv_usage=0.0,
            prefix_query_tokens=self._query_tokens,
            prefix_hit_tokens=self._hit_tokens,
            preemptions=0,
            rejections=0,
            prompt_tokens=self._query_tokens,
            sleeping=not self._awake.is_set(),
            blocks_total=self.num_blocks,
            block_tokens=self.block_tokens,
            ttft_s=Histogram((self.delay_s, float("inf")), (len(self.requests),) * 2, 0.0),
            busy_adapters=frozenset(self._busy),
            adapter_used_s=dict(self._used),
            adapter_slots=self.adapter_slots,
        )

    async def kv_events(self) -> AsyncGenerator[KvEvent, None]:
        """Its whole history, then what happens."""
        for number in itertools.count():
            async with self._changed:
                await self._changed.wait_for(lambda number=number: len(self._history) > number or self._closed)  # type: ignore[misc]
            if number >= len(self._history):
                return
            yield self._history[number]

    async def reset_prefix_cache(self) -> bool:
        """Forget all blocks, unless a request runs."""
        self._fail_if_told()
        if self._running:
            return False
        self._blocks.clear()
        await self._happened([BlocksCleared()])
        return True

    async def close(self) -> None:
        """End the event streams."""
        self._closed = True
        await self._happened([])

    def fall_asleep(self) -> None:
        """From now on requests wait."""
        self._awake.clear()

    def _told(self, request: FakeRequest, chat: bool) -> Warmed:
        """Usage as vLLM counts it: full blocks minus hits, and created tokens for chat only."""
        full = request.prompt_tokens // self.block_tokens * self.block_tokens
        return Warmed(request.prompt_tokens, request.cached_tokens, full - request.cached_tokens if chat else None)

    def _fail_if_told(self) -> None:
        if self._closed:
            raise TransientFault("the engine was closed")
        if self.faults:
            raise self.faults.popleft()

    def _known(self, model: str) -> None:
        if model != self.model and model not in self._adapters:
            raise RefusedCommand(f"The model `{model}` does not exist.")

    async def _request(
        self,
        model: str,
        ids: Sequence[int],
        adapter: str | None,
        salt: Salt | None,
        request_id: str,
        priority: int | None,
        timeout_s: float | None,
    ) -> FakeRequest:
        self._fail_if_told()
        if adapter is not None and self.resolves and adapter not in self._adapters:
            await self.load_adapter(adapter, f"/resolved/{adapter}")
        self._known(adapter or model)
        if not 0 < len(ids) <= self.max_prompt_tokens:
            raise RefusedCommand(f"a prompt has 1 to {self.max_prompt_tokens} tokens, this one {len(ids)}")
        if salt is not None and not salt.well_formed:
            raise RefusedCommand("a cache salt has 1 to 128 characters without '@', '/', '\\' or NUL")
        self._running += 1
        if adapter is not None:
            self._take_slot(adapter)
            self._busy.append(adapter)
            self._used[adapter] = float(len(self.requests) + self._running)
        try:
            async with asyncio.timeout(DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s):
                await self._awake.wait()
                await asyncio.sleep(self.delay_s)
        except TimeoutError as fault:
            raise TransientFault(f"no answer within {timeout_s} s") from fault
        finally:
            self._running -= 1
            if adapter is not None:
                self._busy.remove(adapter)
        answered = self._account(ids, adapter, salt, request_id, priority, adapter or model)
        self.requests.append(answered[0])
        await self._happened(answered[1])
        return answered[0]

    def _account(
        self,
        ids: Sequence[int],
        adapter: str | None,
        salt: Salt | None,
        request_id: str,
        priority: int | None,
        model: str,
    ) -> tuple[FakeRequest, list[KvEvent]]:
        size = self.block_tokens
        hashes: list[int] = []
        parent = int.from_bytes(blake2b(repr((adapter, salt and salt.value)).encode(), digest_size=8).digest())
        for start in range(0, len(ids) - size + 1, size):
            content = parent.to_bytes(8) + array("Q", ids[start : start + size]).tobytes()
            parent = int.from_bytes(blake2b(content, digest_size=8).digest())
            hashes.append(parent)
        findable = hashes[: (len(ids) - 1) // size]
        hits = len(list(itertools.takewhile(self._blocks.__contains__, findable)))
        created = [block_hash for block_hash in hashes[hits:] if block_hash not in self._blocks]
        for block_hash in reversed(hashes):
            self._blocks[block_hash] = None
            self._blocks.move_to_end(block_hash)
        evicted: list[int] = []
        while len(self._blocks) > self.num_blocks:
            evicted.append(self._blocks.popitem(last=False)[0])
        happened: list[KvEvent] = [BlocksRemoved((block_hash,)) for block_hash in evicted if block_hash not in created]
        stored = [block_hash for block_hash in created if block_hash in self._blocks]
        if stored:
            first = hashes.index(stored[0])
            happened.append(
                BlocksStored(
                    hashes=tuple(stored),
                    parent=hashes[first - 1] if first else None,
                    token_ids=tuple(ids[first * size : (first + len(stored)) * size]),
                    block_tokens=size,
                    adapter=adapter,
                    salt=salt.value if salt is not None and first == 0 else None,
                )
            )
        self._query_tokens += len(ids)
        self._hit_tokens += hits * size
        created_tokens = len(stored) * size
        request = FakeRequest(request_id, model, len(ids), hits * size, created_tokens, priority, salt is not None)
        return request, happened

    async def _happened(self, events: Sequence[KvEvent]) -> None:
        async with self._changed:
            self._history.extend(events)
            self._changed.notify_all()


def _text_ids(text: str) -> tuple[int, ...]:
    return tuple(256 + crc32(word.encode()) % 1_000_000 for word in text.split())


def _message_ids(messages: Sequence[ChatMessage], tools: Sequence[Tool] | None) -> tuple[int, ...]:
    opening = _text_ids(repr(sorted(map(repr, tools)))) if tools else ()
    return opening + tuple(
        one for message in messages for one in _text_ids(f"<|{message['role']}|> {message['content']} <|end|>")
    )
