"""The side outputs of the operators: which stream a record leaves by.

Tags are part of the job graph and travel to the TaskManagers by value.
"""

from __future__ import annotations

from pyflink.common import Types
from pyflink.datastream import OutputTag

from jobs.streams import addressed_type, keyed_type

CONTROL = OutputTag("control", addressed_type())
"""ingest → plan: what executors tell about replicas, residency and outcomes."""
TURNS = OutputTag("turns", addressed_type())
"""ingest → session: prompts of scopes whose sessions are looked at."""
PROMPTED = OutputTag("prompted", addressed_type())
"""ingest → prompts: uses of managed prompts, and adopted answers."""
DELTAS = OutputTag("deltas", addressed_type())
"""demand → prefix."""
ASKED = OutputTag("asked", addressed_type())
"""demand → focus: who asked for what, keyed by scope."""
EMBEDS = OutputTag("embeds", addressed_type(Types.INT()))
"""demand → embed, keyed by the buffer that a scope waits in."""
VECTORS = OutputTag("vectors", addressed_type())
"""embed → cluster."""
COUNTS = OutputTag("counts", addressed_type())
"""demand → cluster: totals of queries, keyed by scope."""
INSIGHTS = OutputTag("insights", keyed_type())
"""any → warmup.insights."""
DEAD = OutputTag("dead", keyed_type())
"""any reader → warmup.dlq."""
