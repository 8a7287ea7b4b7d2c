"""Settings of one simulated replica."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from analytics.buddy import PIECE_BYTES

MIB = 1 << 20
Dialect = Literal["vllm", "sglang", "tensorrt_llm"]


@dataclass(frozen=True)
class SimulatorConfig:
    """One replica. Names follow vLLM's flags where it has them, in every dialect.

    Args:
        dialect: whose API it speaks.
        name: replica name, shown in /sim/totals.
        host, port: where HTTP listens; port 0 takes a free one and prints it.
        model: served model name.
        max_model_len: longest prompt plus answer, tokens.
        block_tokens: tokens a KV block.
        num_blocks: blocks of the pool; as in vLLM one of them is the null block and holds nothing.
        max_num_seqs: requests that run at the same time.
        max_num_queued_reqs: requests in flight, waiting or running, above which a request gets 503; None for no limit.
        max_num_queued_tokens: prompt tokens in prefill at which a request gets 503; None for no limit.
        scheduling_policy: `fcfs` ignores `priority`; `priority` runs lower values earlier (others: higher ones).
        prefill_ms_per_token: time to compute a prompt token that is not cached; one prefill at a time.
        decode_ms_per_token: time for each further token of an answer.
        time_scale: divides all times.
        prefill_chunk_tokens: tokens a prefill step; a cancelled request keeps the blocks of its finished steps.
        answer_tokens: length of an answer whose request sets no limit.
        prompt_tokens_details: whether usage tells cached tokens (`--enable-prompt-tokens-details`; SGLang:
            `--enable-cache-report`; TensorRT-LLM always tells).
        runtime_adapters: whether the LoRA routes exist (VLLM_ALLOW_RUNTIME_LORA_UPDATING; SGLang: `--enable-lora`), and
            whether TensorRT-LLM heeds adapters.
        dev_mode: whether sleep and reset routes exist (VLLM_SERVER_DEV_MODE).
        max_loras, max_cpu_loras, max_lora_rank: adapter slots on the GPU and in host memory (SGLang: adapters that are
            loaded at once), and the largest rank.
        adapter_load_ms: time to load an adapter from its path.
        lora_modules: adapters present from the start, name and path.
        lora_cache: folder of adapters by name, each loaded by the first request that names it (vLLM with
            `lora_filesystem_resolver`, VLLM_LORA_RESOLVER_CACHE_DIR); empty for none.
        memory_bytes: GPU memory; None for just enough room for all that follows, each piece rounded up as the buddy
            pool does.
        weight_bytes, kv_bytes_per_token, adapter_bytes: what is laid out in it.
        events_port, replay_port: ZMQ ports; None turns KV events off, 0 takes a free port. TensorRT-LLM has none.
        events_topic, events_buffer: topic of the messages, and how many are kept for a replay.
        ledger_entries: requests that /sim/ledger remembers.
        vocab_tokens: token ids are below this.
    """

    dialect: Dialect = "vllm"
    name: str = "r0"
    host: str = "127.0.0.1"
    port: int = 8000
    model: str = "tiny"
    max_model_len: int = 131_072
    block_tokens: int = 16
    num_blocks: int = 16_384
    max_num_seqs: int = 64
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    prefill_ms_per_token: float = 0.0
    decode_ms_per_token: float = 0.0
    time_scale: float = 1.0
    prefill_chunk_tokens: int = 2048
    answer_tokens: int = 16
    prompt_tokens_details: bool = True
    runtime_adapters: bool = True
    dev_mode: bool = True
    max_loras: int = 4
    max_cpu_loras: int = 8
    max_lora_rank: int = 16
    adapter_load_ms: float = 0.0
    lora_modules: tuple[tuple[str, str], ...] = ()
    lora_cache: str = ""
    memory_bytes: int | None = None
    weight_bytes: int = 1024 * MIB
    kv_bytes_per_token: int = 16_384
    adapter_bytes: int = 32 * MIB
    events_port: int | None = None
    replay_port: int | None = None
    events_topic: str = "kv-events"
    events_buffer: int = 10_000
    ledger_entries: int = 20_000
    vocab_tokens: int = 1 << 20

    def __post_init__(self) -> None:
        if self.num_blocks < 2 or self.block_tokens < 1 or self.max_num_seqs < 1:
            raise ValueError("num_blocks must be at least 2, block_tokens and max_num_seqs at least 1")
        if self.time_scale <= 0 or self.prefill_ms_per_token < 0 or self.decode_ms_per_token < 0:
            raise ValueError("time_scale must be positive, times a token not negative")
        if self.max_cpu_loras < self.max_loras:
            raise ValueError("max_cpu_loras must be at least max_loras")
        if self.dialect == "tensorrt_llm" and (self.max_num_queued_reqs, self.max_num_queued_tokens) != (None, None):
            raise ValueError("TensorRT-LLM has no limit of its queue")

    @property
    def context_tokens(self) -> int:
        """Longest prompt plus answer that also fits into the pool: nothing larger could ever be admitted."""
        return min(self.max_model_len, (self.num_blocks - 1) * self.block_tokens)

    @property
    def kv_bytes(self) -> int:
        """Bytes of the block pool."""
        return self.num_blocks * self.block_tokens * self.kv_bytes_per_token

    @property
    def gpu_bytes(self) -> int:
        """GPU memory, given or just enough."""
        if self.memory_bytes is not None:
            return self.memory_bytes
        adapters = self.max_loras * _power_of_two(self.adapter_bytes)
        return _power_of_two(self.weight_bytes) + _power_of_two(self.kv_bytes) + adapters


def _power_of_two(size: int) -> int:
    return 1 << (max(size, PIECE_BYTES) - 1).bit_length()
