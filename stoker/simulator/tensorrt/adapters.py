"""TensorRT-LLM's rules for adapters: each comes with its requests, is loaded with the first, is known by its number."""

from __future__ import annotations

from stoker.simulator.adapters import Adapter
from stoker.simulator.engine import SimulatedEngine
from stoker.simulator.tensorrt.bodies import LoraRequest
from stoker.simulator.work import AdapterFault


class AdapterDesk:
    """Adapters of one replica.

    Args:
        engine: whose slots it fills. `max_loras` and `max_cpu_loras` of its settings are those of `LoraConfig`.
    """

    def __init__(self, engine: SimulatedEngine) -> None:
        self._engine = engine

    async def used(self, asked: LoraRequest | None) -> Adapter | None:
        """The adapter of a request; None for the base model, which also answers where LoRA is off.

        The number alone decides: another name or path under a known one gets the weights that are there.

        Raises:
            AdapterFault: it cannot be loaded.
        """
        if asked is None or not self._engine.config.runtime_adapters:
            return None
        name = f"lora-{asked.lora_int_id}"
        names = self._engine.adapters.names
        if name not in names:
            try:
                await self._engine.load_adapter(name, asked.lora_path)
            except AdapterFault as fault:
                raise AdapterFault(f"Failed to load LoRA adapter: {fault}", fault.missing) from fault
        return names[name]
