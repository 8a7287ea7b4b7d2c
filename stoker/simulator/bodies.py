"""Request bodies, as far as they change what the simulator does; unknown fields are ignored as by vLLM."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from stoker.simulator.config import SimulatorConfig
from stoker.simulator.errors import ApiError, bad_request, malformed, refused
from stoker.simulator.tokenizer import Tokenizer

SALT_CHARS = 128
SALT_FORBIDDEN = frozenset("@/\\\0")


class StreamOptions(msgspec.Struct):
    """What a stream should tell besides text."""

    include_usage: bool = False


class Generation(msgspec.Struct, kw_only=True):
    """Fields that both generating routes share."""

    model: str | None = None
    max_tokens: int | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    cache_salt: str | None = None
    priority: int = 0
    request_id: str | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionBody(Generation, kw_only=True):
    """POST /v1/completions. `prompt`: text, ids, or a list of either."""

    prompt: Any = None


class Message(msgspec.Struct):
    """A chat message; content parts other than text are left out."""

    role: str
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        """The content as one text."""
        if isinstance(self.content, list):
            return "".join(str(part.get("text", "")) for part in self.content)
        return self.content or ""


class ChatBody(Generation, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True


class TokenizeBody(msgspec.Struct, kw_only=True):
    """POST /tokenize, of a text or of messages."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True


class LoadBody(msgspec.Struct):
    """POST /v1/load_lora_adapter."""

    lora_name: str
    lora_path: str
    load_inplace: bool = False


class UnloadBody(msgspec.Struct):
    """POST /v1/unload_lora_adapter."""

    lora_name: str


Body = TypeVar("Body", bound=msgspec.Struct)
Malformed = Callable[[str], ApiError]
_DECODERS: dict[type[msgspec.Struct], msgspec.json.Decoder[Any]] = {}


def parse(raw: bytes, kind: type[Body], malformed: Malformed = malformed) -> Body:
    """Decode a body. Raises the ApiError that `malformed` makes, by itself vLLM's 400 with type `Bad Request`."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    try:
        body: Body = decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise malformed(str(fault)) from fault
    return body


def check_generation(body: Generation) -> None:
    """Refuse what vLLM refuses before it looks at the prompt."""
    if body.max_tokens is not None and body.max_tokens < 1:
        message = f"max_tokens must be at least 1, got {body.max_tokens}."
        raise bad_request(message, "max_tokens", body.max_tokens)
    salt = body.cache_salt
    if salt == "":
        raise bad_request("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt")
    if salt is not None and (len(salt) > SALT_CHARS or SALT_FORBIDDEN & set(salt)):
        message = (
            f"Parameter 'cache_salt' must be at most {SALT_CHARS} characters and must not contain '@', '/', '\\\\', "
            "or NUL."
        )
        raise bad_request(message, "cache_salt")


def completion_prompts(body: CompletionBody, tokenizer: Tokenizer, config: SimulatorConfig) -> list[bytes]:
    """Token ids of each prompt in the body, packed."""
    prompt = body.prompt
    if prompt is None or prompt == "":
        raise bad_request("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    if prompt == []:
        raise refused("You must pass at least one prompt")
    if isinstance(prompt, str):
        prompts: list[Any] = [prompt]
    elif isinstance(prompt, list):
        prompts = [prompt] if isinstance(prompt[0], int) else prompt
    else:
        raise malformed("prompt: neither text nor token ids", "prompt")
    return [tokenizer.encode(one) if isinstance(one, str) else _packed(one, config) for one in prompts]


def _packed(ids: Any, config: SimulatorConfig) -> bytes:
    try:
        packed = array("I", ids)
    except (TypeError, OverflowError) as fault:
        raise malformed("prompt: token ids must be non-negative integers", "prompt") from fault
    if packed and max(packed) >= config.vocab_tokens:
        raise refused(f"Token id {max(packed)} is out of vocabulary")
    return packed.tobytes()
