"""Flink: thin operators around the decisions of `analytics`, and one file per job that reads like its picture.

`jobs/warmup.py` is the job; it runs by `stoker submit warmup` and by plain `flink run -py jobs/warmup.py`.
"""
