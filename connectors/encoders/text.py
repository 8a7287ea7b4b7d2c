"""What every encoder does to a text before it is tokenised."""

from __future__ import annotations


def clean(text: str) -> str:
    """The text as tokenizers can take it: a lone surrogate, which no UTF-8 can hold, becomes a question mark.

    Raises:
        TypeError: it is no string.
    """
    if not isinstance(text, str):
        raise TypeError(f"an encoder takes strings, not {type(text).__name__}")
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
