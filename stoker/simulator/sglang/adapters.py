"""SGLang's rules for adapters: loads with pins, a bound on those loaded at once, and names that come back by use."""

from __future__ import annotations

from collections import OrderedDict

from stoker.simulator.adapters import Adapter
from stoker.simulator.engine import SimulatedEngine
from stoker.simulator.work import AdapterFault


class AdapterDesk:
    """Adapters of one replica, those used longest ago first to go.

    Args:
        engine: whose slots it fills. `max_loras` of its settings is `--max-loras-per-batch`, `max_cpu_loras` is
            `--max-loaded-loras`.
    """

    def __init__(self, engine: SimulatedEngine) -> None:
        self._engine = engine
        self._known = OrderedDict((adapter.name, adapter.path) for adapter in engine.adapters.names.values())

    @property
    def loaded(self) -> dict[str, str]:
        """Paths by name."""
        return {adapter.name: adapter.path for adapter in self._engine.adapters.names.values()}

    async def load(self, name: str, path: str, pinned: bool) -> None:
        """Load one, and unload whatever is above the bound, least recently used first, but for pinned ones.

        Raises:
            AdapterFault: it is loaded already, its files are missing or wrong, or there is no room for it or its pin.
        """
        slots = self._engine.adapters
        if not self._engine.config.runtime_adapters:
            raise AdapterFault("LoRA is not enabled. Please set `--enable-lora` to enable LoRA.", missing=False)
        if name in slots.names:
            told = f"Failed to load LoRA adapter {name} because it is already loaded"
            raise AdapterFault(told, missing=False)
        if pinned and len(slots.pinned) >= slots.gpu_slots - 1:
            told = f"Failed to load LoRA adapter {name} as a pinned adapter: one slot has to be left for the others."
            raise AdapterFault(told, missing=False)
        await self._engine.load_adapter(name, path)
        if pinned:
            slots.pinned.add(slots.names[name].adapter_id)
        self._known[name] = path
        self._known.move_to_end(name)
        idle = [other for other in self._known if other in slots.names and other != name]
        for other in idle:
            if len(slots.names) > slots.cpu_slots and slots.names[other].adapter_id not in slots.pinned:
                slots.unregister(other)

    def unload(self, name: str) -> None:
        """Take a name away.

        Raises:
            AdapterFault: it is not loaded.
        """
        slots = self._engine.adapters
        if name not in slots.names:
            raise AdapterFault(f"LoRA with name {name} does not exist. Loaded LoRAs: {self.loaded.keys()}", True)
        slots.pinned.discard(slots.names[name].adapter_id)
        slots.unregister(name)

    async def used(self, name: str) -> Adapter:
        """The adapter of a request; one that was loaded once is loaded again (sglang #11526).

        Raises:
            AdapterFault: it was never loaded, or cannot be loaded now.
        """
        slots = self._engine.adapters
        if name not in slots.names:
            if name not in self._known:
                told = f"The following requested LoRA adapters are not loaded: {{{name!r}}}"
                raise AdapterFault(told, missing=True)
            await self.load(name, self._known[name], pinned=False)
        self._known.move_to_end(name)
        return slots.names[name]
