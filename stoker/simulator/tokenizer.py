"""A deterministic small tokenizer: cheap, stable between processes, and additive at message boundaries.

Text is cut at special tokens (`<|user|>`) and between them into pieces of at most eight visible characters with the one
blank before them: a short word is one token, so text of n short words has n tokens. An id is a checksum of its piece.
A special token never joins its neighbours, therefore a prefix of messages gives a prefix of tokens, and sending the
rendered text to `/v1/completions` gives the same ids as sending the messages to `/v1/chat/completions`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from zlib import crc32

FIRST_ID = 256
_SPECIAL = re.compile(r"(<\|[a-z_]+\|>)")
_PIECE = re.compile(r"\s?\S{1,8}|\s")
_CACHED_PIECES = 1 << 20
_CACHED_TEXTS = 8192
_CACHED_TEXT_CHARS = 65_536
ANSWER_WORDS = tuple(f" {number:03x}" for number in range(4096))


class Tokenizer:
    """Text to token ids, packed as four little-endian bytes a token.

    Args:
        vocab_tokens: ids are in [256, vocab_tokens).
    """

    def __init__(self, vocab_tokens: int) -> None:
        self._span = vocab_tokens - FIRST_ID
        self._ids: dict[str, bytes] = {}
        self._cached = lru_cache(_CACHED_TEXTS)(self._encode)

    def encode(self, text: str) -> bytes:
        """Ids of a text."""
        return self._cached(text) if len(text) <= _CACHED_TEXT_CHARS else self._encode(text)

    def message(self, role: str, content: str) -> bytes:
        """Ids of one message in the chat template: `<|role|>content<|end|>`."""
        return self.encode(render_message(role, content))

    def chat(self, messages: Iterable[tuple[str, str]], tools: Sequence[Mapping[str, Any]], opening: bool) -> bytes:
        """Ids of a chat prompt; tools come first, and `opening` adds the generation prompt `<|assistant|>`."""
        parts = [self.message("tools", json.dumps(tools, sort_keys=True))] if tools else []
        parts.extend(self.message(role, content) for role, content in messages)
        if opening:
            parts.append(self.encode("<|assistant|>"))
        return b"".join(parts)

    def answer(self, prompt: bytes, tokens: int) -> list[int]:
        """Numbers of the words that "follow" a prompt, in ANSWER_WORDS: the same for the same prompt."""
        seed = crc32(prompt)
        return [(seed + 40_503 * i) % len(ANSWER_WORDS) for i in range(tokens)]

    def answer_ids(self, words: Iterable[int]) -> bytes:
        """Ids of these words. Encoding the answer's text gives the same ids, so that a next turn finds its blocks."""
        return b"".join(self._encode(ANSWER_WORDS[word]) for word in words)

    def _encode(self, text: str) -> bytes:
        ids = self._ids
        if len(ids) > _CACHED_PIECES:
            ids.clear()
        out: list[bytes] = []
        for part in _SPECIAL.split(text):
            for piece in (part,) if part.startswith("<|") and part.endswith("|>") else _PIECE.findall(part):
                known = ids.get(piece)
                if known is None:
                    known = ids[piece] = (FIRST_ID + crc32(piece.encode()) % self._span).to_bytes(4, "little")
                out.append(known)
        return b"".join(out)


def render_message(role: str, content: str) -> str:
    """One message as the chat template writes it."""
    return f"<|{role}|>{content}<|end|>"
