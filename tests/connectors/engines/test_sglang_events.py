"""SGLang's KV events: vLLM's scheme with hashes of either sign, and the salt in another place."""

from __future__ import annotations

import msgspec
import pytest

from connectors.engines.events import BlocksStored
from connectors.engines.kv_events import decode_batch


@pytest.mark.parametrize(
    "stored",
    [
        ["BlockStored", [-7, 8], None, [1, 2, 3, 4], 2, None, "GPU", {"cache_salt": "tenant-a"}],
        {
            "type": "BlockStored",
            "block_hashes": [-7, 8],
            "parent_block_hash": None,
            "token_ids": [1, 2, 3, 4],
            "block_size": 2,
            "lora_id": None,
            "medium": "GPU",
            "cache_salt": "tenant-a",
            "session_id": None,
        },
    ],
)
def test_both_of_sglangs_forms_tell_the_salt(stored: object) -> None:
    (event,) = decode_batch(msgspec.msgpack.encode([0.5, [stored], 1]))
    assert event == BlocksStored((-7, 8), None, (1, 2, 3, 4), 2, None, "tenant-a", "GPU", 1)


def test_blocks_of_token_pairs_are_not_taken_for_tokens() -> None:
    pairs = ["BlockStored", [7], None, [[1, 2], [2, 3]], 2, None, "GPU"]
    with pytest.raises(ValueError, match="token pairs"):
        decode_batch(msgspec.msgpack.encode([0.5, [pairs]]))
