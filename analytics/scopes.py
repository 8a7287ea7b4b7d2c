"""Which scope a tenant belongs to: versioned configuration, read at job start (DESIGN §4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from schemas import EVERY_SCOPE, DeadReason, PoisonMessage

DEFAULT_SCOPE = "default"


@dataclass(frozen=True)
class ScopeMap:
    """Tenants and their scopes.

    Attributes:
        version: of this mapping; a change needs a restart of the job.
        tenants: tenant to scope. Tenants that agreed to share have the same scope.
        unknown: what happens to a tenant that is not listed: it joins scope `default` together with all others not
            listed, gets a scope of its own name (`own`), or its events are dead letters (`reject`). With `own`, a name
            that is already somebody else's scope, or stands for every scope, is refused too: a tenant chooses its
            name, and must not choose whose scope it joins.
        small: scopes whose demand lives in one shard, because it is little.
    """

    version: str = "1"
    tenants: Mapping[str, str] = field(default_factory=dict)
    unknown: Literal["default", "own", "reject"] = "default"
    small: frozenset[str] = frozenset()

    @cached_property
    def _taken(self) -> frozenset[str]:
        return frozenset({*self.tenants.values(), DEFAULT_SCOPE, EVERY_SCOPE})

    def scope_of(self, tenant: str) -> str:
        """The scope of a tenant.

        Raises:
            PoisonMessage: the tenant is unknown, and `unknown` is `reject` or its name is taken.
        """
        scope = self.tenants.get(tenant)
        if scope is not None:
            return scope
        if self.unknown == "own":
            if tenant in self._taken:
                raise PoisonMessage(DeadReason.UNKNOWN_TENANT, "$.tenant", "not in the scope map, and named as a scope")
            return tenant
        if self.unknown == "reject":
            raise PoisonMessage(
                DeadReason.UNKNOWN_TENANT, "$.tenant", "not in the scope map, which rejects unknown ones"
            )
        return DEFAULT_SCOPE
