"""SGLang's API over a simulated replica: other routes, bodies, errors, names and adapter rules, the same cache below.

From the sources of SGLang 0.5.23, never compared with a running one. Not simulated: streams, batches of prompts,
eviction by priority, and the tiers of HiCache.
"""

VERSION = "0.5.23"
