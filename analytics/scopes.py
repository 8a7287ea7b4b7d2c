"""Which scope a tenant belongs to: versioned configuration, read at job start (DESIGN §4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from schemas import DeadReason, PoisonMessage

DEFAULT_SCOPE = "default"


@dataclass(frozen=True)
class ScopeMap:
    """Tenants and their scopes.

    Attributes:
        version: of this mapping; a change needs a restart of the job.
        tenants: tenant to scope. Tenants that agreed to share have the same scope.
        unknown: what happens to a tenant that is not listed: it joins scope `default` together with all others not
            listed, gets a scope of its own name (`own`), or its events are dead letters (`reject`).
        small: scopes whose demand lives in one shard, because it is little.
    """

    version: str = "1"
    tenants: Mapping[str, str] = field(default_factory=dict)
    unknown: Literal["default", "own", "reject"] = "default"
    small: frozenset[str] = frozenset()

    def scope_of(self, tenant: str) -> str:
        """The scope of a tenant.

        Raises:
            PoisonMessage: the tenant is unknown and `unknown` is `reject`.
        """
        scope = self.tenants.get(tenant)
        if scope is not None:
            return scope
        if self.unknown == "own":
            return tenant
        if self.unknown == "reject":
            raise PoisonMessage(
                DeadReason.UNKNOWN_TENANT, "$.tenant", "not in the scope map, which rejects unknown ones"
            )
        return DEFAULT_SCOPE
