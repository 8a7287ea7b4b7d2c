"""The nodes of one pool's prefix tree: decayed hotness per segment, bounded, with a memory of what had to leave.

A node is a segment; its hash is chained over its predecessors, so (root, hash) names a whole path. A request adds to
every node of its path, hence a parent is at least as hot as each child, and cold leaves can leave alone. Those that
leave become ghosts of a key and three numbers: what comes back goes on where it was (D11).
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Iterator
from math import exp, log1p

from analytics.decay import EMPTY
from analytics.envelopes import Chain, Root
from analytics.patch_log import PatchLog
from analytics.records import Record, Section, pack, unpack

HASH_BYTES = 16
ROOT_BYTES = 8
SPARE_NODES = 256
"""How many outdated ones a store may hold beside twice the present nodes."""


class NodeRecord(Record, frozen=True, array_like=True):
    """A node as it is kept."""

    key: bytes
    parent: bytes
    tokens: int
    role: int
    level: float
    last_ms: int


class PatchRecord(Record, frozen=True, array_like=True):
    """What one call of `write` changed: nodes as they are then, and the keys of those that left."""

    nodes: tuple[NodeRecord, ...]
    gone: tuple[bytes, ...]


class GhostRecord(Record, frozen=True, array_like=True):
    """A segment that left."""

    key: bytes
    level: float
    last_ms: int
    tokens: int

    @property
    def worth(self) -> float:
        """What remembering it is worth beside others, in the log domain: its hotness times what a hit would save."""
        return self.level + math.log(max(1, self.tokens))


class Node:
    """One segment of the tree.

    Attributes:
        key: eight bytes of the root's identity and sixteen of the segment's hash.
        level: hotness in the log domain.
        children: how many nodes have this one as parent.
    """

    __slots__ = ("children", "key", "last_ms", "level", "parent", "role", "tokens")

    def __init__(self, key: bytes, parent: Node | None, tokens: int, role: int, level: float, last_ms: int) -> None:
        self.key = key
        self.parent = parent
        self.tokens = tokens
        self.role = role
        self.level = level
        self.last_ms = last_ms
        self.children = 0

    @property
    def hash(self) -> bytes:
        """The segment's hash."""
        return self.key[ROOT_BYTES:]

    @property
    def root(self) -> bytes:
        """Identity of the root."""
        return self.key[:ROOT_BYTES]


def root_id(root: Root) -> bytes:
    """Identity of a root: eight bytes of a digest over its fields, salt included."""
    text = "\0".join((root.model, root.adapter, root.template_sha, root.tools_sha, root.salt_ref))
    return hashlib.sha256(text.encode()).digest()[:ROOT_BYTES]


class NodeTable:
    """Nodes and ghosts of one pool.

    What changed is remembered until `write` puts it into the store; the caller keeps what made the changes until then.
    The store of nodes is a log of patches, since a slide touches hundreds of nodes and each record costs a call into
    Flink.
    """

    def __init__(self, max_nodes: int, max_ghosts: int, nodes: Section, ghosts: Section) -> None:
        self._max_nodes = max_nodes
        self._max_ghosts = max_ghosts
        self._log = PatchLog(nodes, SPARE_NODES, self._patch)
        self._ghost_store = ghosts
        self._nodes: dict[bytes, Node] = {}
        self._ghosts: dict[bytes, GhostRecord] = {}
        self._dirty: set[bytes] = set()
        self._dirty_ghosts: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    @property
    def ghosts(self) -> int:
        """How many ghosts are held."""
        return len(self._ghosts)

    def add(self, root: bytes, chain: Chain, mark: float) -> int | None:
        """Adds a chain's requests to every node of its path.

        Args:
            mark: the level of these requests alone.

        Returns:
            when the deepest segment that was known before had been asked for last; None where none was.
        """
        nodes, hashes, last_ms, changed = self._nodes, chain.hashes, chain.last_ms, self._dirty.add
        before_ms: int | None = None
        parent: Node | None = None
        for index, tokens in enumerate(chain.tokens):
            key = root + hashes[HASH_BYTES * index : HASH_BYTES * (index + 1)]
            node = nodes.get(key)
            if node is None:
                ghost = self._ghosts.pop(key, None)
                level = EMPTY
                if ghost is not None:
                    self._dirty_ghosts.add(key)
                    level, before_ms = ghost.level, ghost.last_ms
                node = nodes[key] = Node(key, parent, tokens, chain.roles[index], level, last_ms)
                if parent is not None:
                    parent.children += 1
            else:
                before_ms = node.last_ms
            level = node.level
            if mark > level:
                node.level = mark + log1p(exp(level - mark))
            else:
                node.level = level + log1p(exp(mark - level))
            if last_ms > node.last_ms:
                node.last_ms = last_ms
            changed(key)
            parent = node
        return before_ms

    def last_asked_ms(self, key: bytes) -> int:
        """When a segment was asked for last; 0 where it is neither held nor a ghost."""
        known = self._nodes.get(key) or self._ghosts.get(key)
        return 0 if known is None else known.last_ms

    def shrink(self) -> None:
        """Keeps within the bounds: the coldest leaves become ghosts, the ghosts of least worth are forgotten.

        A tenth is made free at once, so that this is rare. Ties go by key: the outcome depends on the nodes alone.
        """
        if len(self._nodes) > self._max_nodes:
            target = self._max_nodes * 9 // 10
            leaves = [(node.level, node.key) for node in self._nodes.values() if not node.children]
            heapq.heapify(leaves)
            while len(self._nodes) > target:
                level, key = heapq.heappop(leaves)
                node = self._nodes.pop(key)
                self._ghosts[key] = GhostRecord(1, key, level, node.last_ms, node.tokens)
                self._dirty.add(key)
                self._dirty_ghosts.add(key)
                parent = node.parent
                if parent is not None:
                    parent.children -= 1
                    if not parent.children:
                        heapq.heappush(leaves, (parent.level, parent.key))
        if len(self._ghosts) > self._max_ghosts:
            surplus = len(self._ghosts) - self._max_ghosts * 9 // 10
            least = heapq.nsmallest(surplus, ((ghost.worth, key) for key, ghost in self._ghosts.items()))
            for _, key in least:
                del self._ghosts[key]
                self._dirty_ghosts.add(key)

    def clear(self) -> None:
        """Forgets every node and ghost."""
        self._dirty.update(self._nodes)
        self._dirty_ghosts.update(self._ghosts)
        self._nodes.clear()
        self._ghosts.clear()

    def write(self) -> None:
        """Puts every change since the last call into the store."""
        if self._dirty:
            self._log.write(self._dirty, self._nodes)
        for key in self._dirty_ghosts:
            kept = self._ghosts.get(key)
            if kept is None:
                self._ghost_store.remove(key.hex())
            else:
                self._ghost_store.put(key.hex(), pack(kept))
        self._dirty.clear()
        self._dirty_ghosts.clear()

    def _patch(self, keys: list[bytes]) -> bytes:
        nodes = [node for node in map(self._nodes.get, keys) if node is not None]
        gone = tuple(key for key in keys if key not in self._nodes)
        return pack(PatchRecord(1, tuple(map(_record, nodes)), gone))

    def restore(self, patches: list[tuple[str, bytes]], ghosts: list[bytes]) -> None:
        """Takes the records that `write` put.

        Args:
            patches: keys within the section of nodes, and records, in any order.
        """
        records: dict[bytes, NodeRecord] = {}
        for name, blob in sorted(patches):
            patch = unpack(blob, PatchRecord)
            records.update((record.key, record) for record in patch.nodes)
            for key in patch.gone:
                records.pop(key, None)
            self._log.restored(name, len(patch.nodes) + len(patch.gone))
        for record in records.values():
            self._nodes[record.key] = Node(record.key, None, record.tokens, record.role, record.level, record.last_ms)
        for record in records.values():
            if record.parent:
                parent = self._nodes[record.parent]
                self._nodes[record.key].parent = parent
                parent.children += 1
        for blob in ghosts:
            ghost = unpack(blob, GhostRecord)
            self._ghosts[ghost.key] = ghost


def _record(node: Node) -> NodeRecord:
    parent = node.parent.key if node.parent is not None else b""
    return NodeRecord(1, node.key, parent, node.tokens, node.role, node.level, node.last_ms)
