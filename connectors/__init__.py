"""The outside world behind small Protocols, each with a fake that keeps the same contract."""
