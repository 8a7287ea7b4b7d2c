"""Follow what Stoker decides: every warm-up command, and what its jobs saw. Needs kafka-python and nothing of Stoker.

python examples/consume_commands.py 127.0.0.1:19092
"""

import json
import sys

from kafka import KafkaConsumer

consumer = KafkaConsumer(
    "warmup.commands",
    "warmup.insights",
    bootstrap_servers=sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092",
    group_id="my-service",  # each member of the group gets a part; at-least-once, so act by command_id
    auto_offset_reset="earliest",
)
for record in consumer:
    message = json.loads(record.value)  # fields at their default are left out
    if record.topic == "warmup.commands":
        print("command", message.get("action", "warm"), message["target_key"], "arm", message.get("arm", "warm"))
    else:
        print("insight", message["schema"], message.get("scope") or message.get("pool", "-"))
