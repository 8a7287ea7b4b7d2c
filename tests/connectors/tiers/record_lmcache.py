"""Records what a real node answers: `python tests/connectors/tiers/record_lmcache.py URL > lmcache-VERSION.json`.

The node is `real_node.py`, just started, with an empty L2. Long runs of token ids are written as their length.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import httpx

PROMPT = {"model_name": "/models/m", "world_size": 1, "token_ids": list(range(600)), "cache_salt": ""}
PREFETCHES = "/cache/prefetches"
LONG = 10


class Recorder:
    """One node, and what it has answered so far."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url)
        self.exchanges: list[dict[str, Any]] = []

    def ask(self, name: str, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """One exchange."""
        answer = self._client.request(method, path, json=body)
        self._keep(name, method, path, body, answer.status_code, answer.json())
        return answer.json()

    def config(self) -> None:
        """Of all that it tells of itself, what Stoker reads."""
        told = self._client.get("/config").json()
        evicts = told["storage_manager"]["l1_manager_config"]["eviction"]["eviction_policy"]
        read = {
            "mp": {"chunk_size": told["mp"]["chunk_size"]},
            "storage_manager": {"l1_manager_config": {"eviction": {"eviction_policy": evicts}}},
        }
        self._keep("config", "GET", "/config", None, 200, read)

    def fetch(self, name: str, body: dict[str, Any]) -> None:
        """A prefetch, its result, and a second look at that."""
        path = f"{PREFETCHES}/{self.ask(name, 'POST', PREFETCHES, body)['request_id']}"
        while (answer := self._client.get(path).json())["status"] == "pending":
            time.sleep(0.01)
        self._keep(f"{name}, status", "GET", path, None, 200, answer)
        self.ask(f"{name}, status again", "GET", path)

    def silently(self, path: str, body: dict[str, Any]) -> None:
        """What only prepares."""
        self._client.post(path, json=body).raise_for_status()

    def _keep(self, name: str, method: str, path: str, body: Any, status: int, answer: Any) -> None:
        sent = body
        if body and len(body.get("token_ids", ())) > LONG:
            sent = body | {"token_ids": {"range": len(body["token_ids"])}}
        row = {"name": name, "method": method, "path": path, "body": sent, "status": status, "answer": answer}
        self.exchanges.append(row)


def main(url: str) -> None:
    """Asks, in this order."""
    node = Recorder(url)
    node.ask("health", "GET", "/healthcheck")
    node.ask("quotas", "GET", "/quota")
    node.config()
    node.ask("model not registered", "POST", PREFETCHES, PROMPT)
    node.silently("/recording/register", PROMPT)
    node.ask("below a chunk", "POST", PREFETCHES, PROMPT | {"token_ids": [1, 2, 3]})
    node.fetch("nothing stored", PROMPT)
    node.silently("/recording/store", PROMPT)
    time.sleep(2)
    node.silently("/cache/clear", {"tier": "l1", "force": True})
    node.fetch("stored", PROMPT)
    node.fetch("in host memory", PROMPT)
    node.fetch("longer than stored", PROMPT | {"token_ids": list(range(1100))})
    node.fetch("another salt", PROMPT | {"cache_salt": "s"})
    node.ask("forbidden salt", "POST", PREFETCHES, PROMPT | {"cache_salt": "a@b"})
    node.ask("wrong tier", "POST", PREFETCHES, PROMPT | {"source_tier": "l1"})
    node.ask("fields missing", "POST", PREFETCHES, {"model_name": "m"})
    node.ask("unknown id", "GET", f"{PREFETCHES}/nope")
    node.ask("unknown route", "GET", "/nope")
    json.dump({"exchanges": node.exchanges}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main(sys.argv[1])
