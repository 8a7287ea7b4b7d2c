"""The command line and everything around the product: local stack, engine simulator, replay, demo, benches.

It may import every other package; none of them imports it.
"""
