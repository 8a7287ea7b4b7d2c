"""`make test-engines`: starts real engines on this machine and holds the contract suites and warm-ups against them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from schemas.errors import StackFault
from stoker.stack import ports
from stoker.stack.engines import Engine, EngineConfig
from stoker.stack.paths import PROJECT, StateFolder, cache_folder
from tests.engines.small_model import MAX_TOKENS, write_adapter, write_model

READY_S = 900.0
MAX_RANK = 16
TOPIC = "kv-events"
SUITES = ("tests/contracts/test_engine_contract.py", "tests/contracts/test_engine_http.py", "tests/engines")


class RealVllm:
    """A vLLM on CPU with a small model, adapters, KV events and prompt token details."""

    def __init__(self, folder: Path, state: StateFolder) -> None:
        self.port, self._events, self._replay = ports.free_ports(3)
        self._folder = folder
        # A real one in the place of a simulator: the same URL and the same question whether it answers.
        self._served = Engine(EngineConfig("vllm", self.port), state)
        self.url, self.process = self._served.config.url, self._served.process

    def start(self) -> None:
        """Writes the model and waits until it is served.

        Raises:
            StackFault: it is not installed, or did not come up.
        """
        python = cache_folder() / "engines" / "vllm" / "bin" / "python"
        if not python.exists():
            raise StackFault(f"no vLLM at {python}: run `make test-engines`, which installs it")
        write_model(self._folder / "model")
        write_adapter(self._folder / "adapter", 8, seed=1)
        write_adapter(self._folder / "large-adapter", 4 * MAX_RANK, seed=2)
        self.process.start([str(python), *self._arguments()], self._environment())
        self.process.wait_ready(self._served.ready, READY_S)

    def _arguments(self) -> list[str]:
        events = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{self._events}",
            "replay_endpoint": f"tcp://*:{self._replay}",
            "topic": TOPIC,
        }
        # Its own command line asks for the metadata of a package named vllm, which the CPU build is not.
        module = ["-m", "vllm.entrypoints.openai.api_server", "--model", str(self._folder / "model")]
        served = ["--served-model-name", "tiny", "--host", ports.LOOPBACK, "--port", str(self.port)]
        small = ["--load-format", "dummy", "--dtype", "float32", "--enforce-eager", "--max-model-len", str(MAX_TOKENS)]
        cache = ["--block-size", "32", "--enable-prefix-caching", "--enable-prompt-tokens-details"]
        adapters = ["--enable-lora", "--max-loras", "4", "--max-cpu-loras", "8", "--max-lora-rank", str(MAX_RANK)]
        told = ["--max-num-seqs", "16", "--kv-events-config", json.dumps(events)]
        return [*module, *served, *small, *cache, *adapters, *told]

    def _environment(self) -> dict[str, str]:
        return {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "HF_HUB_OFFLINE": "1",
            "PYTHONHASHSEED": "0",
        }

    def told(self) -> dict[str, str]:
        """The variables by which the suites find it."""
        events = f"tcp://{ports.LOOPBACK}:{self._events},tcp://{ports.LOOPBACK}:{self._replay},{TOPIC}"
        return {
            "STOKER_VLLM_URL": self.url,
            "STOKER_VLLM_EVENTS": events,
            "STOKER_VLLM_LORA": str(self._folder / "adapter"),
            "STOKER_VLLM_LORA_LARGE": str(self._folder / "large-adapter"),
        }


def main(arguments: list[str]) -> int:
    """Runs everything; further arguments go to pytest."""
    with tempfile.TemporaryDirectory(prefix="stoker-engines-") as folder:
        engine = RealVllm(Path(folder), StateFolder.at(Path(folder) / "state"))
        try:
            engine.start()
            print(f"vLLM on CPU answers at {engine.url}", flush=True)
            environment = {**os.environ, **engine.told()}
            command = [sys.executable, "-m", "pytest", "-q", "-s", *SUITES, *arguments]
            return subprocess.run(command, cwd=PROJECT, env=environment, check=False).returncode
        except StackFault as fault:
            print(f"engines: {fault}", file=sys.stderr)
            return fault.exit_code
        finally:
            engine.process.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
