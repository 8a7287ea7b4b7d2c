"""The tokenizer's laws: cheap, stable, additive at message boundaries."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.simulator.tokenizer import ANSWER_WORDS, Tokenizer, render_message

tokenizer = Tokenizer(1 << 20)
texts = st.text(max_size=60)
messages = st.lists(st.tuples(st.sampled_from(("system", "user", "assistant")), texts), max_size=5)


@settings(deadline=None)
@given(texts, texts)
def test_a_special_token_separates(left: str, right: str) -> None:
    whole = tokenizer.encode(f"{left}<|end|>{right}")
    assert whole == tokenizer.encode(left) + tokenizer.encode("<|end|>") + tokenizer.encode(right)


@settings(deadline=None)
@given(messages)
def test_chat_tokens_are_those_of_the_rendered_text(conversation: list[tuple[str, str]]) -> None:
    text = "".join(render_message(role, content) for role, content in conversation)
    assert tokenizer.chat(conversation, [], opening=True) == tokenizer.encode(text + "<|assistant|>")
    for end in range(len(conversation)):
        prefix = tokenizer.chat(conversation[:end], [], opening=False)
        assert tokenizer.chat(conversation, [], opening=False).startswith(prefix)


@settings(deadline=None)
@given(st.lists(st.text("abcdefgh0123", min_size=1, max_size=7), max_size=50))
def test_n_short_words_are_n_tokens(words: list[str]) -> None:
    assert len(tokenizer.encode(" ".join(words))) == 4 * len(words)


@settings(deadline=None)
@given(st.binary(max_size=40), st.integers(0, 20))
def test_an_answers_text_gives_the_answers_ids(prompt: bytes, tokens: int) -> None:
    words = tokenizer.answer(prompt, tokens)
    assert len(words) == tokens
    assert tokenizer.encode("".join(ANSWER_WORDS[word] for word in words)) == tokenizer.answer_ids(words)


def test_ids_are_stable_between_processes_and_versions() -> None:
    ids = tokenizer.encode("The cache is hot")
    assert [int.from_bytes(ids[i : i + 4], "little") for i in range(0, 16, 4)] == [551942, 936303, 726170, 415223]
