"""Cache salts by reference. The gateway salts a tenant's requests; a warm-up without the same salt helps nobody."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from connectors.engines.base import Salt
from connectors.settings import SecretRef


class SaltStore:
    """Salts by scope and `salt_ref`, revealed once at start: a missing secret is a mistake of set-up, not of a command.

    A salt is its scope's own: if the name were enough, a command of one scope could warm text in another's
    salted space.

    Args:
        references: where each salt lies, by scope and then by name.

    Raises:
        BrokenConfiguration: a reference leads nowhere.
    """

    def __init__(self, references: Mapping[str, Mapping[str, SecretRef]]) -> None:
        self._salts = {
            (scope, name): Salt(reference.reveal())
            for scope, named in references.items()
            for name, reference in named.items()
        }

    def __len__(self) -> int:
        return len(self._salts)

    def pair(self) -> tuple[Salt, Salt]:
        """The first scope's salt, and one that must not find what lies under it: another scope's where there is one of
        another value. There has to be a salt."""
        (owner, _), one = next(iter(self._salts.items()))
        others = (salt for (scope, _), salt in self._salts.items() if scope != owner and salt != one)
        return one, next(others, Salt(secrets.token_hex(16)))

    def find(self, scope: str, salt_ref: str) -> Salt | None:
        """The salt, or None where this executor was given none of that name for that scope."""
        return self._salts.get((scope, salt_ref))
