"""A real node of LMCache with two routes more, by which a test plays the engine: it registers a model, stores prompts.

Runs where `lmcache` is installed, not in Stoker's environment; no GPU is needed. Its arguments are those of LMCache's
own server (docs/engines.md, LMCache).
"""

import torch
from lmcache.v1.distributed.api import MemoryLayoutDesc
from lmcache.v1.multiprocess import http_server
from lmcache.v1.multiprocess.cache_control.key_resolver import resolve_object_keys

LAYOUT = MemoryLayoutDesc(shapes=[torch.Size([2, 2, 256, 16])], dtypes=[torch.float32])


@http_server.app.post("/recording/register")
def register(body: dict) -> dict:
    """As an engine that connects."""
    registry = http_server.app.state.engine.context.layout_desc_registry
    registry.register(body["model_name"], body["world_size"], LAYOUT)
    return {}


@http_server.app.post("/recording/store")
def store(body: dict) -> dict:
    """As an engine that has computed a prompt."""
    engine = http_server.app.state.engine
    keys, chunks = resolve_object_keys(
        engine.context.token_hasher, body["model_name"], body["world_size"], body["token_ids"], body["cache_salt"]
    )
    reserved = engine.storage_manager.reserve_write(keys, LAYOUT)
    engine.storage_manager.finish_write(list(reserved))
    return {"chunks": chunks}


if __name__ == "__main__":
    given = http_server.parse_args()
    http_server.run_http_server(
        http_config=http_server.parse_args_to_http_frontend_config(given),
        mp_config=http_server.parse_args_to_mp_server_config(given),
        storage_manager_config=http_server.parse_args_to_config(given),
        obs_config=http_server.parse_args_to_observability_config(given),
        coordinator_config=http_server.parse_args_to_coordinator_config(given),
    )
