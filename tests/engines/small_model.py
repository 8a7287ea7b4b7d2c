"""A small Llama for a real vLLM on CPU: configuration and tokenizer without weights, and adapters with random ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

LAYERS, WIDTH, HEADS, KV_HEADS = 8, 512, 8, 4
HEAD_WIDTH = WIDTH // HEADS
"""A multiple of 32, as vLLM's attention on CPU wants it."""
MAX_TOKENS = 8_192
VOCABULARY = 8_192
"""Far more than the bytes: the suites and the trial of salts send prompts as ids of their choice."""
SPECIAL = ["<s>", "</s>", "<pad>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>"]
CHAT = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write_model(folder: Path) -> None:
    """A model folder; serve it with dummy weights. Each byte of a text is a token; what it answers are mostly words."""
    folder.mkdir(parents=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([""], trainer)
    words = range(tokenizer.get_vocab_size(), VOCABULARY)
    tokenizer.add_tokens([f"<|word-{number}|>" for number in words])
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": 3 * WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_WIDTH,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": MAX_TOKENS,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        **ids,
    }
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    spoken = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": MAX_TOKENS, "chat_template": CHAT}
    for name, content in (
        ("config.json", config),
        ("generation_config.json", ids),
        ("tokenizer_config.json", {**spoken, **names}),
    ):
        (folder / name).write_text(json.dumps(content))


def write_adapter(folder: Path, rank: int, seed: int) -> None:
    """A LoRA adapter for that model, in PEFT's layout."""
    folder.mkdir(parents=True)
    source = np.random.default_rng(seed)
    widths = {"q_proj": HEADS * HEAD_WIDTH, "v_proj": KV_HEADS * HEAD_WIDTH}
    weights = {}
    for layer in range(LAYERS):
        for module, width in widths.items():
            key = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            weights[f"{key}.lora_A.weight"] = source.normal(0, 0.5, (rank, WIDTH)).astype(np.float32)
            weights[f"{key}.lora_B.weight"] = source.normal(0, 0.5, (width, rank)).astype(np.float32)
    save_file(weights, str(folder / "adapter_model.safetensors"))
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "tiny",
        "r": rank,
        "lora_alpha": 2 * rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(widths),
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
