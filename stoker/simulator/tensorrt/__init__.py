"""TensorRT-LLM's API (trtllm-serve) over a simulated replica: other routes, bodies, errors, names and adapter rules,
the same cache below.

From sources of 2026, never compared with a running one. Not simulated: streams, batches of prompts, blocks that are
reused in part, /kv_cache_events, the host and disk tiers, and the chat route of gpt-oss models, which drops salts.
"""

VERSION = "1.4.0"
