"""Adapter slots: which LoRA weights sit on the GPU and in host memory. Pure accounting.

Two registries that vLLM keeps apart: *names* that the API accepts, and *weights* in slots, keyed by an id that every
load counts up. Unloading takes only the name away (vLLM #54839); weights leave by LRU.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True)
class Adapter:
    """A named adapter; `adapter_id` names its weights."""

    name: str
    path: str
    adapter_id: int


class AdapterSlots:
    """Names, GPU slots and host copies of one replica. What is `pinned` keeps its slot.

    Args:
        gpu_slots: `max_loras`.
        cpu_slots: `max_cpu_loras`; a copy on the GPU also has one in host memory.
    """

    def __init__(self, gpu_slots: int, cpu_slots: int) -> None:
        self.gpu_slots = gpu_slots
        self.cpu_slots = cpu_slots
        self.names: dict[str, Adapter] = {}
        self.pinned: set[int] = set()
        self._gpu: OrderedDict[int, str] = OrderedDict()
        self._cpu: OrderedDict[int, str] = OrderedDict()
        self._running: dict[int, int] = {}
        self._last_id = 0

    def register(self, name: str, path: str) -> Adapter:
        """Accept a name. The same name keeps the id of its weights."""
        known = self.names.get(name)
        if known is None:
            self._last_id += 1
        adapter = Adapter(name, path, known.adapter_id if known else self._last_id)
        self.names[name] = adapter
        return adapter

    def unregister(self, name: str) -> None:
        """Take a name away; its weights stay in their slots."""
        del self.names[name]

    def can_activate(self, adapter: Adapter) -> bool:
        """Whether it is on the GPU, or a slot is empty or held by an adapter that may leave it."""
        return adapter.adapter_id in self._gpu or len(self._gpu) < self.gpu_slots or self._victim() is not None

    def _victim(self) -> int | None:
        """The least recently used on the GPU that no running request uses and nobody pinned."""
        return next((other for other in self._gpu if other not in self._running and other not in self.pinned), None)

    def activate(self, adapter: Adapter) -> list[int]:
        """Bring the weights onto the GPU and make them the most recently used.

        Returns:
            Ids that had to leave the GPU.

        Raises:
            LookupError: every slot is in use; ask `can_activate` before.
        """
        evicted: list[int] = []
        if adapter.adapter_id not in self._gpu and len(self._gpu) >= self.gpu_slots:
            victim = self._victim()
            if victim is None:
                raise LookupError(f"all {self.gpu_slots} adapter slots are in use")
            del self._gpu[victim]
            evicted.append(victim)
        for level in (self._gpu, self._cpu):
            level[adapter.adapter_id] = adapter.name
            level.move_to_end(adapter.adapter_id)
        while len(self._cpu) > self.cpu_slots:
            victim = next(other for other in self._cpu if other not in self._gpu)
            del self._cpu[victim]
        return evicted

    def begin(self, adapter: Adapter) -> None:
        """A request with this adapter starts to run: its slot cannot be taken."""
        self._running[adapter.adapter_id] = self._running.get(adapter.adapter_id, 0) + 1

    def end(self, adapter: Adapter) -> None:
        """A request with this adapter ended."""
        left = self._running[adapter.adapter_id] - 1
        if left:
            self._running[adapter.adapter_id] = left
        else:
            del self._running[adapter.adapter_id]

    @property
    def on_gpu(self) -> list[str]:
        """Names on the GPU as they were when loaded, least recently used first."""
        return list(self._gpu.values())

    @property
    def on_cpu(self) -> list[str]:
        """Names with a copy in host memory, least recently used first."""
        return list(self._cpu.values())
