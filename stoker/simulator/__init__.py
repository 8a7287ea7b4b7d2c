"""An engine simulator that speaks vLLM's HTTP API, or SGLang's, and does the right accounting, without a model.

`blocks`, `chain`, `adapters`, `tokenizer` are pure and know no HTTP; `engine` puts them on one clock; `vllm_api` and
`answers` give them vLLM's routes and bodies; `events` and `exposition` its KV events and metrics. Folder `sglang` has
the same for the other dialect, over the same engine. Run it with `python -m stoker.simulator [--dialect sglang]`.
"""

from stoker.simulator.config import SimulatorConfig

__all__ = ["SimulatorConfig"]
