"""Every decision of Stoker, pure: a frozen configuration, a state, and functions of (state, event, time).

Nothing here reads a clock, a random source or the network, and nothing knows Flink: operators in `jobs` call these
objects, and so do the tests.
"""
