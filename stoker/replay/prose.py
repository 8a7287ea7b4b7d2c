"""Texts that nobody wrote: deterministic words of known number, for documents and answers of generated workloads."""

from __future__ import annotations

import random
from functools import lru_cache

_ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z")
_VOWELS = ("a", "e", "i", "o", "u")
_VOCABULARY = tuple(
    f"{a}{b}{c}{d}" for a in _ONSETS for b in _VOWELS for c in _ONSETS for d in _VOWELS
)  # 4,900 words of four letters: about one token each for any tokenizer that knows syllables


@lru_cache(4096)
def prose(name: str, words: int) -> str:
    """A text of `words` words. The same name gives the same words, a longer text begins with the shorter one."""
    source = random.Random(name)
    return " ".join(source.choice(_VOCABULARY) for _ in range(words))
