"""Cache salts by reference. The gateway salts a tenant's requests; a warm-up without the same salt helps nobody."""

from __future__ import annotations

from collections.abc import Mapping

from connectors.engines.base import Salt
from connectors.settings import SecretRef


class SaltStore:
    """Salts by `salt_ref`, revealed once at start: a missing secret is a mistake of set-up, not of a command.

    Args:
        references: where each salt lies.

    Raises:
        BrokenConfiguration: a reference leads nowhere.
    """

    def __init__(self, references: Mapping[str, SecretRef]) -> None:
        self._salts = {name: Salt(reference.reveal()) for name, reference in references.items()}

    def find(self, salt_ref: str) -> Salt | None:
        """The salt, or None where this executor was given none of that name."""
        return self._salts.get(salt_ref)
