"""An engine simulator that speaks vLLM's HTTP API and does the right accounting, without a model.

`blocks`, `chain`, `adapters`, `memory`, `tokenizer` are pure and know no HTTP; `engine` puts them on one clock; `app`
and `answers` give them vLLM's routes and bodies; `events` and `exposition` its KV events and metrics. Run it with
`python -m stoker.simulator`.
"""

from stoker.simulator.config import SimulatorConfig

__all__ = ["SimulatorConfig"]
