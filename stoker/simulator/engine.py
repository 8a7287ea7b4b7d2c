"""One simulated replica on a clock: queue, one prefill at a time, decode side by side, events and books.

No HTTP in here. Life of a request: `request` checks the limits and queues it; `_pump` admits the head of the queue when
a sequence slot, its blocks, its adapter slot and the prefill turn are free; the prefill sleeps chunk by chunk and makes
blocks findable; the turn passes on; each further word sleeps its time; at the end, or when the consumer goes away, the
blocks are released, tail first, and the ledger gets its entry.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import json
import secrets
import time
from array import array
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, Literal

from analytics.buddy import BuddyPool
from stoker.simulator import events
from stoker.simulator.adapters import Adapter, AdapterSlots
from stoker.simulator.blocks import BlockPool
from stoker.simulator.chain import TOKEN_BYTES, block_hashes, chain_root, wire
from stoker.simulator.config import SimulatorConfig
from stoker.simulator.events import EventPublisher
from stoker.simulator.ledger import Entry, Ledger
from stoker.simulator.timings import Timings
from stoker.simulator.tokenizer import Tokenizer
from stoker.simulator.work import AdapterFault, QueueFull, QueueLimit, Work

_POLL_S = 0.005


class SimulatedEngine:
    """A replica without a model. All its state is volatile; `incarnation` differs at each start.

    Args:
        config: its settings.
        publisher: where KV events go, None without.

    Raises:
        ValueError: the configured memory does not hold weights and blocks.
    """

    def __init__(self, config: SimulatorConfig, publisher: EventPublisher | None = None) -> None:
        self.config = config
        self.publisher = publisher
        self.incarnation = secrets.token_hex(8)
        self.started_s = time.time()
        self.tokenizer = Tokenizer(config.vocab_tokens)
        self.pool = BlockPool(config.num_blocks, config.block_tokens)
        self.adapters = AdapterSlots(config.max_loras, config.max_cpu_loras)
        self.memory = BuddyPool(config.gpu_bytes)
        self.ledger = Ledger(config.ledger_entries)
        self.timings = Timings()
        self.rejections: dict[QueueLimit, int] = {"max_num_queued_reqs": 0, "max_num_queued_tokens": 0}
        self.sleep_level: int | None = None
        self.query_tokens = 0
        self.hit_tokens = 0
        self.running: set[Work] = set()
        self._waiting: list[tuple[int, int, Work]] = []
        self._arrivals = itertools.count()
        self._prefilling: Work | None = None
        self._awake = asyncio.Event()
        self._awake.set()
        self._untold: list[dict[str, Any]] = []
        self._adapter_memory: dict[int, int] = {}
        self.adapter_activity: dict[tuple[str, str], float] = {}
        layout = sorted(
            {"weights": config.weight_bytes, "KV blocks": config.kv_bytes}.items(), key=lambda item: -item[1]
        )
        for what, size in layout:
            if self.memory.allocate(size) is None:
                raise ValueError(f"memory_bytes is too small: no room for {size} bytes of {what}")
        for name, path in config.lora_modules:
            self._activate(self.adapters.register(name, path))

    @property
    def waiting(self) -> list[Work]:
        """Queued requests, without order."""
        return [work for _priority, _arrival, work in self._waiting]

    @property
    def in_flight(self) -> int:
        """Waiting and running requests."""
        return len(self._waiting) + len(self.running)

    @contextlib.asynccontextmanager
    async def request(self, work: Work) -> AsyncIterator[AsyncIterator[int]]:
        """Queue a request and give the numbers of its answer's words as they come. Leaving the block cancels it.

        Raises:
            QueueFull: at a queue limit; nothing is queued then.
        """
        self._check_limits()
        work.arrived_s = time.perf_counter()
        order = work.priority if self.config.scheduling_policy == "priority" else 0
        heapq.heappush(self._waiting, (order, next(self._arrivals), work))
        words = self._words(work)
        try:
            yield words
        finally:
            await words.aclose()
            self._end(work)

    def _check_limits(self) -> None:
        limits = self.config
        if limits.max_num_queued_reqs is not None and self.in_flight + 1 > limits.max_num_queued_reqs:
            raise self._rejected("max_num_queued_reqs")
        if limits.max_num_queued_tokens is not None:
            in_prefill = [work for work in (*self.waiting, *self.running) if not work.answered]
            if sum(work.prompt_tokens for work in in_prefill) >= limits.max_num_queued_tokens:
                raise self._rejected("max_num_queued_tokens")

    def _rejected(self, reason: QueueLimit) -> QueueFull:
        self.rejections[reason] += 1
        return QueueFull(reason)

    async def _words(self, work: Work) -> AsyncGenerator[int, None]:
        self._pump()
        await work.admitted.wait()
        scheduled_s = time.perf_counter()
        if work.aborted or not await self._prefill(work):
            return
        last_s = first_s = time.perf_counter()
        self.timings.first_token(first_s - work.arrived_s, scheduled_s - work.arrived_s, first_s - scheduled_s)
        self._pass_turn(work)
        decode_s = self.config.decode_ms_per_token / 1000 / self.config.time_scale
        words = self.tokenizer.answer(work.prompt, work.answer_tokens)
        for word in words:
            if work.answered:
                if work.adapter is not None:
                    self.note_adapters()
                await self._pause(decode_s)
                if work.aborted:
                    return
                now_s = time.perf_counter()
                self.timings.further_token(now_s - last_s)
                last_s = now_s
                self._store_answer(work, words[: work.answered])
            work.answered += 1
            yield word
        work.outcome = work.finish
        self.timings.finished(work, last_s - first_s, time.perf_counter() - work.arrived_s)

    async def _prefill(self, work: Work) -> bool:
        """Sleep through the uncached part chunk by chunk; each finished chunk's blocks become findable. False if the
        request was aborted meanwhile."""
        ms_per_token = self.config.prefill_ms_per_token / self.config.time_scale
        done, end = work.cached_tokens, work.prompt_tokens
        while done < end:
            chunk = min(self.config.prefill_chunk_tokens, end - done) if ms_per_token else end - done
            await self._pause(chunk * ms_per_token / 1000)
            if work.aborted:
                return False
            done += chunk
            self._store(work, done, work.prompt, 0)
        return True

    def _store_answer(self, work: Work, words: list[int]) -> None:
        """Make the block findable that the KV of the last of `words` completes."""
        block_tokens = self.config.block_tokens
        computed = work.prompt_tokens + len(words)
        if computed % block_tokens or work.held is None:
            return
        block_bytes = block_tokens * TOKEN_BYTES
        block = (work.prompt[-block_bytes:] + self.tokenizer.answer_ids(words[-block_tokens:]))[-block_bytes:]
        hashes = work.held.hashes
        parent = hashes[-1] if hashes else chain_root(work.adapter_name, work.salt)
        hashes.extend(block_hashes(block, block_tokens, parent))
        self._store(work, computed, block, len(hashes) - 1)

    def _store(self, work: Work, computed_tokens: int, tokens: bytes, first_block: int) -> None:
        """Make full blocks findable and tell it; `tokens` begins with block number `first_block`."""
        assert work.held is not None
        created = self.pool.store(work.held, computed_tokens)
        work.created_tokens += len(created) * self.config.block_tokens
        if self.publisher is None:
            self.pool.take_evictions()
            return
        batch = self._evictions()
        block_bytes = self.config.block_tokens * TOKEN_BYTES
        for run in _runs(created):
            start, stop = run[0][0], run[-1][0] + 1
            ids = array("I")
            ids.frombytes(tokens[(start - first_block) * block_bytes : (stop - first_block) * block_bytes])
            batch.append(
                events.stored(
                    [wire(block_hash) for _index, block_hash in run],
                    wire(work.held.hashes[start - 1]) if start else None,
                    ids.tolist(),
                    self.config.block_tokens,
                    work.adapter_name,
                    work.adapter.adapter_id if work.adapter else None,
                    work.salt,
                )
            )
        self._publish(batch)

    def _evictions(self) -> list[dict[str, Any]]:
        return [events.removed(wire(block_hash)) for block_hash in self.pool.take_evictions()]

    def _publish(self, batch: list[dict[str, Any]]) -> None:
        if self.publisher is not None and batch:
            self.publisher.publish([*self._untold, *batch])
            self._untold.clear()

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            await asyncio.sleep(seconds)
        if self.sleep_level is not None:
            await self._awake.wait()

    def _pump(self) -> None:
        """Admit the head of the queue if everything it needs is free. Head-of-line blocking is vLLM's own."""
        if not self._waiting or self._prefilling is not None or self.sleep_level is not None:
            return
        work = self._waiting[0][2]
        if len(self.running) >= self.config.max_num_seqs:
            return
        if work.adapter is not None and not self.adapters.can_activate(work.adapter):
            return
        if work.hashes is None:
            root = chain_root(work.adapter_name, work.salt)
            work.hashes = block_hashes(work.prompt, self.config.block_tokens, root)
        # The last word of an answer is never fed back, so its KV is never computed.
        total = work.prompt_tokens + max(work.answer_tokens - 1, 0)
        work.held = self.pool.admit(work.hashes, work.prompt_tokens, total)
        if work.held is None:
            return
        heapq.heappop(self._waiting)
        work.cached_tokens = work.held.hit_blocks * self.config.block_tokens
        self.query_tokens += work.prompt_tokens
        self.hit_tokens += work.cached_tokens
        if work.adapter is not None:
            self._activate(work.adapter)
            self.adapters.begin(work.adapter)
        self.running.add(work)
        self._prefilling = work
        work.admitted.set()
        if self.config.prefill_ms_per_token:
            self._publish(self._evictions())

    def _pass_turn(self, work: Work) -> None:
        if self._prefilling is work:
            self._prefilling = None
            self._pump()

    def _end(self, work: Work) -> None:
        """Release what the request holds, wherever it was interrupted."""
        if work in self.running:
            self.running.remove(work)
            assert work.held is not None
            self.pool.release(work.held)
            if work.adapter is not None:
                self.adapters.end(work.adapter)
        else:
            self._waiting = [entry for entry in self._waiting if entry[2] is not work]
            heapq.heapify(self._waiting)
        entry = Entry(
            request_id=work.request_id,
            model=work.adapter_name or self.config.model,
            prompt_tokens=work.prompt_tokens,
            cached_tokens=work.cached_tokens,
            created_tokens=work.created_tokens,
            outcome=work.outcome,
            salt=work.salt,
        )
        self.ledger.add(entry, work.answered)
        self.note_adapters()
        self._publish(self._evictions())
        if self._prefilling is work:
            self._prefilling = None
        self._pump()

    def note_adapters(self) -> None:
        """Book which adapters run and wait now, as (running, waiting). vLLM does so after each step, so that it never
        shows a request of one token, and it never forgets a combination that once was true."""
        if not self.adapters.names and not self.adapter_activity:
            return
        running = ",".join(sorted({work.adapter.name for work in self.running if work.adapter}))
        waiting = ",".join(sorted({work.adapter.name for work in self.waiting if work.adapter}))
        self.adapter_activity[running, waiting] = time.time()

    def reset_prefix_cache(self) -> bool:
        """Forget idle blocks; False while requests hold some. As with vLLM the event goes out with the next batch, so
        a subscriber hears of a reset when the next request stores a block."""
        done = self.pool.clear()
        if done and self.publisher is not None:
            self._untold.append(events.cleared())
        return done

    async def sleep(self, level: int, mode: Literal["abort", "wait", "keep"]) -> None:
        """Fall asleep: from level 1 on the prefix cache is lost. `abort` ends what is in flight, `wait` lets it end,
        `keep` freezes it. Requests that come now wait until `wake_up`."""
        in_flight = [*self.waiting, *self.running]
        if mode == "wait":
            await self._until_gone(in_flight)
        self.sleep_level = level
        if mode == "abort":
            # Those that sleep in a prefill or decode step notice when the step ends.
            for work in in_flight:
                work.aborted = True
                work.admitted.set()
            await self._until_gone(in_flight)
        self._awake.clear()
        if level >= 1:
            self.reset_prefix_cache()

    async def _until_gone(self, works: list[Work]) -> None:
        while any(work in self.running or work in self.waiting for work in works):
            await asyncio.sleep(_POLL_S)

    def wake_up(self) -> None:
        """Go on."""
        self.sleep_level = None
        self._awake.set()
        self._pump()

    async def load_adapter(self, name: str, path: str) -> None:
        """Read the adapter's configuration, take a GPU slot and accept the name.

        Raises:
            AdapterFault: nothing at the path, a rank above the limit, or no slot or memory for it.
        """
        rank = _adapter_rank(name, path)
        await asyncio.sleep(self.config.adapter_load_ms / 1000 / self.config.time_scale)
        if rank > self.config.max_lora_rank:
            raise AdapterFault(f"LoRA rank {rank} is greater than max_lora_rank {self.config.max_lora_rank}.", False)
        known = self.adapters.names.get(name)
        try:
            self._activate(self.adapters.register(name, path))
        except (LookupError, MemoryError) as fault:
            if known is None:
                self.adapters.unregister(name)
            raise AdapterFault(str(fault), missing=False) from fault

    def _activate(self, adapter: Adapter) -> None:
        for evicted in self.adapters.activate(adapter):
            offset = self._adapter_memory.pop(evicted, None)
            if offset is not None:
                self.memory.give_back(offset)
        if adapter.adapter_id not in self._adapter_memory:
            offset = self.memory.allocate(self.config.adapter_bytes)
            if offset is None:
                raise MemoryError(f"no {self.config.adapter_bytes} bytes of GPU memory for adapter {adapter.name}")
            self._adapter_memory[adapter.adapter_id] = offset


def _runs(created: list[tuple[int, bytes]]) -> list[list[tuple[int, bytes]]]:
    """Split into runs of consecutive block numbers."""
    runs: list[list[tuple[int, bytes]]] = []
    for item in created:
        if runs and runs[-1][-1][0] + 1 == item[0]:
            runs[-1].append(item)
        else:
            runs.append([item])
    return runs


def _adapter_rank(name: str, path: str) -> int:
    try:
        return int(json.loads((Path(path) / "adapter_config.json").read_text()).get("r", 8))
    except OSError:
        raise AdapterFault(f"Loading lora {name} failed: No adapter found for {path}", missing=True) from None
    except (ValueError, AttributeError) as fault:
        raise AdapterFault(f"adapter_config.json at {path}: {fault}", missing=False) from fault
