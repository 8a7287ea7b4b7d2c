"""Workloads and the client that plays them: traces or generated turns become requests to engines and request events.

Sources (`mooncake`, `azure`, `generated`) are pure iterators of `Turn`; `Gateway` sends them and publishes what a
gateway would.
"""

from stoker.replay.azure import AzureConfig, azure, read_arrivals
from stoker.replay.blobs import FreshBlobs
from stoker.replay.events import Marks
from stoker.replay.gateway import Gateway, GatewayConfig, Salting, Seen, http_client
from stoker.replay.generated import GeneratedConfig, TenantPlan, generated
from stoker.replay.mooncake import MooncakeConfig, mooncake, read_trace
from stoker.replay.queries import load_queries
from stoker.replay.sink import EventSink
from stoker.replay.turns import Piece, Turn, faster, until

__all__ = [
    "AzureConfig",
    "EventSink",
    "FreshBlobs",
    "Gateway",
    "GatewayConfig",
    "GeneratedConfig",
    "Marks",
    "MooncakeConfig",
    "Piece",
    "Salting",
    "Seen",
    "TenantPlan",
    "Turn",
    "azure",
    "faster",
    "generated",
    "http_client",
    "load_queries",
    "mooncake",
    "read_arrivals",
    "read_trace",
    "until",
]
