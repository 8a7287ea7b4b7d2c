"""Advice on the size of a paged KV cache from observed requests: `lengths` reads them, `advice` says what follows."""
