"""The whole of Stoker at once: gateway's events, job, executor and engines on a real Kafka and a real Redis."""
