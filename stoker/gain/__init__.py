"""What a cache of the service could have found and did not: from request events or from the engines' own counters.

`asked` reads traffic, `bounds` and `simulation` say what LRU, Stoker, Belady and an endless cache would find in it,
`killers` why the rest is missed, `counters` what vLLM says itself, and `show` draws all of it.
"""
