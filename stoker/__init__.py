"""The command line, the local stack, the engine simulator, replay, demo and benches."""
