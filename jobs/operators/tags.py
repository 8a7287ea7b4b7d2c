"""The side outputs of the operators: which stream a record leaves by.

Tags are part of the job graph and travel to the TaskManagers by value.
"""

from __future__ import annotations

from pyflink.datastream import OutputTag

from jobs.streams import bytes_type, keyed_type

CONTROL = OutputTag("control", bytes_type())
"""ingest → plan: what executors tell about replicas, residency and outcomes."""
DELTAS = OutputTag("deltas", bytes_type())
"""demand → prefix."""
EMBEDS = OutputTag("embeds", bytes_type())
"""demand → embed."""
INSIGHTS = OutputTag("insights", keyed_type())
"""any → warmup.insights."""
DEAD = OutputTag("dead", keyed_type())
"""any reader → warmup.dlq."""
