"""Backtests: each module plays one decision over recorded or generated data, beside the bounds that judge it.

`run()` of a module returns its `Report` (stoker.bench.figures); `data` finds the public data sets.
"""
