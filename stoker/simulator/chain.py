"""Identity of KV blocks: a hash chained over all full blocks before it (vLLM's scheme, own digest).

The salt and the adapter enter the root only; since hashes are chained, another salt or adapter means a wholly separate
tree. A block that is not full has no identity.
"""

from __future__ import annotations

from hashlib import blake2b

TOKEN_BYTES = 4
HASH_BYTES = 8


def chain_root(adapter: str | None, salt: str | None) -> bytes:
    """What the first block chains on. Length prefixes keep ("ab", "c") and ("a", "bc") apart, absence and "" too."""
    digest = blake2b(digest_size=HASH_BYTES, person=b"stoker.root")
    for part in (adapter, salt):
        raw = b"" if part is None else part.encode()
        digest.update((0 if part is None else len(raw) + 1).to_bytes(4, "little") + raw)
    return digest.digest()


def block_hashes(tokens: bytes, block_tokens: int, parent: bytes) -> list[bytes]:
    """Hashes of the full blocks in `tokens` (four bytes a token), chained on `parent`."""
    step = block_tokens * TOKEN_BYTES
    hashes: list[bytes] = []
    append = hashes.append
    for start in range(0, len(tokens) - step + 1, step):
        parent = blake2b(parent + tokens[start : start + step], digest_size=HASH_BYTES).digest()
        append(parent)
    return hashes


def wire(block_hash: bytes) -> int:
    """The unsigned integer that KV events carry."""
    return int.from_bytes(block_hash, "big")
