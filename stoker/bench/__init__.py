"""Benches: each module measures one part against a baseline in the same run and prints its figures.

`figures` holds what they have in common: `Figure`, `Goal`, `Report`.
"""
