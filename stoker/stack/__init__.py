"""The embedded stack: Kafka, Redis, engine simulators and Flink as plain processes, without Docker and without root.

`Stack` brings the services up and down; `stoker.stack.flink` runs a job on a real cluster. Tests and the demo use both.
"""
