"""What a warm-up by a command through Kafka is worth to the first request, at the vLLM that STOKER_VLLM_URL names."""

from __future__ import annotations

import hashlib
import os
import statistics
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from schemas import Adapter, Replicas
from schemas.canonical import adapter_key
from tests.executor.town import SCOPE, Town

URL = os.environ.get("STOKER_VLLM_URL", "")
LORA = os.environ.get("STOKER_VLLM_LORA", "")
TOKENS = 3_000
"""Of a prefix; the model's tokens are bytes."""
ROUNDS = 5
TIMES_AS_FAST = 10
SALTS = {"acme": ("ACME_SALT", "pepper"), "globex": ("GLOBEX_SALT", "chili")}

pytestmark = [
    pytest.mark.service,
    pytest.mark.slow,
    pytest.mark.skipif(not URL, reason="STOKER_VLLM_URL is not set: `make test-engines` starts a real vLLM"),
]


@pytest.fixture(scope="module")
def town(kafka_bootstrap: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    port = httpx.URL(URL).port
    assert port is not None
    town = Town(kafka_bootstrap, redis_url, tmp_path_factory.mktemp("town"), real_ports=[port])
    with pytest.MonkeyPatch.context() as environment:
        for scope, (name, value) in SALTS.items():
            environment.setenv(name, value)
            town.more_settings += [f"[executor.salts.{scope}]", f'main = {{ env = "{name}" }}']
        town.executor(request_timeout_ms=60_000)
        yield town
    town.close()


def text() -> str:
    """A prefix that nobody has asked for."""
    source = uuid.uuid4().hex
    return " ".join(f"{source[:5]}{number:04d}" for number in range(TOKENS // 10))


def ask(prefix: str, salt: str | None = None, model: str = "tiny") -> tuple[float, int]:
    """Seconds that a request waits for its first token, and how many tokens it found cached."""
    messages = [{"role": "system", "content": prefix}, {"role": "user", "content": "and now?"}]
    body: dict[str, Any] = {"model": model, "messages": messages, "max_tokens": 1}
    began_s = time.monotonic()
    body |= {"cache_salt": salt} if salt else {}
    answer = httpx.post(f"{URL}/v1/chat/completions", json=body, timeout=120, trust_env=False)
    waited_s = time.monotonic() - began_s
    assert answer.status_code == 200, answer.text
    return waited_s, (answer.json()["usage"]["prompt_tokens_details"] or {}).get("cached_tokens", 0)


def applied(town: Town, *commands: Any) -> None:
    town.send(*commands)
    ended = {outcome.status for told in town.settled(commands).values() for outcome in told}
    assert ended == {"applied"}


def test_the_first_request_of_a_warmed_prefix_is_ten_times_as_fast_as_of_a_cold_one(town: Town) -> None:
    ask(text())  # whatever the engine does once
    cold, warm = [], []
    for _ in range(ROUNDS):
        waited_s, cached = ask(text())
        assert cached < TOKENS / 100
        cold.append(waited_s)
        prefix = text()
        applied(town, town.warm(prefix))
        waited_s, cached = ask(prefix)
        assert cached > TOKENS * 0.95
        warm.append(waited_s)
    faster = statistics.median(cold) / statistics.median(warm)
    print(
        f"\n{TOKENS} tokens, {ROUNDS} prefixes each: first token after {1000 * statistics.median(cold):.0f} ms cold, ",
        end="",
    )
    print(f"{1000 * statistics.median(warm):.0f} ms warmed: {faster:.1f} times as fast")
    assert faster >= TIMES_AS_FAST


@pytest.mark.skipif(not LORA, reason="STOKER_VLLM_LORA is not set: no adapter to load")
def test_an_adapter_is_there_before_its_first_request(town: Town) -> None:
    weights = (Path(LORA) / "adapter_model.safetensors").read_bytes()
    name = f"german-{town.name}"
    target = Adapter(name=name, version="7", source=LORA, sha256=hashlib.sha256(weights).hexdigest(), rank=8)
    body = {"model": f"{name}@7", "prompt": "hello", "max_tokens": 1}
    assert httpx.post(f"{URL}/v1/completions", json=body, timeout=60, trust_env=False).status_code == 404
    town.sent += 1
    command = town.command(
        target, adapter_key(name, "7"), pool="gpu", action="load", replicas=Replicas(names=tuple(town.engines))
    )
    applied(town, command)
    assert f"{name}@7" in {
        card["id"] for card in httpx.get(f"{URL}/v1/models", timeout=10, trust_env=False).json()["data"]
    }
    assert httpx.post(f"{URL}/v1/completions", json=body, timeout=60, trust_env=False).status_code == 200


def test_what_one_scope_warmed_under_its_salt_no_other_finds(town: Town) -> None:
    prefix = text()
    applied(town, town.warm(prefix, salt_ref="main"))
    (_, own), (_, others) = SALTS[SCOPE], SALTS["globex"]
    assert ask(prefix, others)[1] == 0
    assert ask(prefix)[1] == 0
    assert ask(prefix, own)[1] > TOKENS * 0.95
