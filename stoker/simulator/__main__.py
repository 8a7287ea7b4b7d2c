"""`python -m stoker.simulator`: one simulated replica in its own process.

When it listens it prints one line of JSON: name, url, incarnation, and the endpoints of its KV events. Every field of
`SimulatorConfig` is a flag, with dashes for underscores.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import socket
import sys
from collections.abc import Sequence
from typing import Any, get_args

import uvicorn

from stoker.simulator.app import build_app
from stoker.simulator.config import Dialect, SimulatorConfig
from stoker.simulator.engine import SimulatedEngine
from stoker.simulator.events import EventPublisher, as_it_is
from stoker.simulator.sglang.events import spelled

_OPTIONAL_INTS = ("max_num_queued_reqs", "max_num_queued_tokens", "events_port", "replay_port", "memory_bytes")
_CHOICES = {"scheduling_policy": ("fcfs", "priority"), "dialect": get_args(Dialect)}


def parse_arguments(arguments: Sequence[str] | None = None) -> SimulatorConfig:
    """Flags to settings. Ends the process with status 2 and a sentence on a wrong one."""
    parser = argparse.ArgumentParser(prog="python -m stoker.simulator", description=__doc__)
    for field in dataclasses.fields(SimulatorConfig):
        flag = "--" + field.name.replace("_", "-")
        settings: dict[str, Any] = {"default": field.default, "help": f"default {field.default}"}
        if field.name == "lora_modules":
            settings |= {"nargs": "*", "default": (), "metavar": "NAME=PATH", "type": _adapter}
        elif field.name in _CHOICES:
            settings["choices"] = _CHOICES[field.name]
        elif isinstance(field.default, bool):
            settings["action"] = argparse.BooleanOptionalAction
        else:
            settings["type"] = int if field.name in _OPTIONAL_INTS else type(field.default)
        parser.add_argument(flag, **settings)
    values = vars(parser.parse_args(arguments))
    values["lora_modules"] = tuple(values["lora_modules"])
    try:
        return SimulatorConfig(**values)
    except ValueError as fault:
        parser.error(str(fault))


def _adapter(text: str) -> tuple[str, str]:
    name, separator, path = text.partition("=")
    if not (name and separator and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH")
    return name, path


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal comes. Returns the exit status."""
    config = parse_arguments(arguments)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((config.host, config.port))
        publisher = None
        if config.events_port is not None and config.dialect != "tensorrt_llm":
            ports = (config.events_port, config.replay_port or 0)
            spell = spelled if config.dialect == "sglang" else as_it_is
            publisher = EventPublisher(config.host, *ports, config.events_topic, config.events_buffer, spell)
        engine = SimulatedEngine(config, publisher)
    except (OSError, ValueError) as fault:
        print(f"simulator {config.name}: cannot start on {config.host}:{config.port}: {fault}", file=sys.stderr)
        return 2
    port = listener.getsockname()[1]
    started = {"name": config.name, "url": f"http://{config.host}:{port}", "incarnation": engine.incarnation}
    if publisher is not None:
        started |= {"events": publisher.endpoint, "replay": publisher.replay_endpoint}
    settings = uvicorn.Config(
        build_app(engine), log_level="warning", access_log=False, ws="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(settings)
    listener.listen(1024)
    print(json.dumps(started), flush=True)
    server.run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
