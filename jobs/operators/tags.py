"""The side outputs of the operators: which stream a record leaves by.

Tags are part of the job graph and travel to the TaskManagers by value.
"""

from __future__ import annotations

from pyflink.datastream import OutputTag

from jobs.streams import bytes_type, keyed_type

CONTROL = OutputTag("control", bytes_type())
"""ingest → plan: what executors tell about replicas, residency and outcomes."""
TURNS = OutputTag("turns", bytes_type())
"""ingest → session: prompts of scopes whose sessions are looked at."""
PROMPTED = OutputTag("prompted", bytes_type())
"""ingest → prompts: uses of managed prompts, and adopted answers."""
DELTAS = OutputTag("deltas", bytes_type())
"""demand → prefix."""
ASKED = OutputTag("asked", bytes_type())
"""demand → focus: who asked for what, keyed by scope."""
EMBEDS = OutputTag("embeds", bytes_type())
"""demand → embed."""
VECTORS = OutputTag("vectors", bytes_type())
"""embed → cluster."""
COUNTS = OutputTag("counts", bytes_type())
"""demand → cluster: totals of queries, keyed by scope."""
INSIGHTS = OutputTag("insights", keyed_type())
"""any → warmup.insights."""
DEAD = OutputTag("dead", keyed_type())
"""any reader → warmup.dlq."""
