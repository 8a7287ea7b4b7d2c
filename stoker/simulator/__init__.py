"""An engine simulator that speaks the HTTP API of vLLM, SGLang or TensorRT-LLM, and does the right accounting, without
a model.

`blocks`, `chain`, `adapters`, `tokenizer` are pure and know no HTTP; `engine` puts them on one clock; `vllm_api` and
`answers` give them vLLM's routes and bodies; `events` and `exposition` its KV events and metrics. Folders `sglang`
and `tensorrt` have the same for the other dialects, over the same engine. Run it with `python -m stoker.simulator
[--dialect sglang|tensorrt_llm]`.
"""

from stoker.simulator.config import SimulatorConfig

__all__ = ["SimulatorConfig"]
