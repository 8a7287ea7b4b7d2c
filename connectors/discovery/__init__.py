"""Where the replicas of an engine pool are found: by DNS or Kubernetes, behind one port.

`base` is the contract; `dns` and `kubernetes` look again and again, `fake` is told by a test.
"""

from connectors.discovery.base import Discovery, Endpoint
from connectors.discovery.dns import DnsDiscovery
from connectors.discovery.kubernetes import KubernetesDiscovery
from connectors.discovery.settings import DiscoverySettings, DnsSettings, FoundReplicas, KubernetesSettings

__all__ = [
    "Discovery",
    "DiscoverySettings",
    "DnsDiscovery",
    "DnsSettings",
    "Endpoint",
    "FoundReplicas",
    "KubernetesDiscovery",
    "KubernetesSettings",
]
