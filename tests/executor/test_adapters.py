"""Adapter commands: what is looked at before an engine loads, how they end, and that they can be taken back."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from executor.apply.adapter import DRAIN_S
from executor.apply.adapter_files import AdapterLibrary, NoAdapter
from schemas import Adapter, Cancel, RefusedCommand, Replicas, ReplicaSample, TransientFault, decode, topics
from schemas.canonical import adapter_key, cancel_key

WEIGHTS = b"weights of an adapter"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """An adapter of rank 8 on a disk that executor and engine share."""
    folder = tmp_path / "german-7"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8}))
    (folder / "adapter_model.safetensors").write_bytes(WEIGHTS)
    return folder


def adapter(files: Path | str | None, **fields) -> Adapter:
    values = {"sha256": hashlib.sha256(WEIGHTS).hexdigest(), "rank": 8, **fields}
    return Adapter(name="german", version="7", source=None if files is None else str(files), **values)


def command(world, target: Adapter, action: str = "load", **fields):
    return world.command(target, adapter_key(target.name, target.version), pool="gpu", action=action, **fields)


async def ended(world, target: Adapter, action: str = "load", **fields):
    sent = command(world, target, action, **fields)
    world.send(sent)
    return await world.outcome(sent)


def names(world) -> list[str]:
    return [name for engine in world.engines.values() for name in engine._adapters]


async def test_an_adapter_is_loaded_listed_touched_and_told(world, files: Path) -> None:
    await world.start()
    outcome = await ended(world, adapter(files))
    assert (outcome.status, outcome.reason, outcome.action) == ("applied", "done", "load")
    assert outcome.bytes == len(WEIGHTS)
    engine = world.engines[outcome.replica]
    listed = [(known.name, known.path) for known in await engine.adapters()]
    assert listed == [("german@7", str(files))]
    assert [(request.model, request.request_id) for request in engine.requests] == [
        ("german@7", f"warmup-{outcome.command_id}")
    ]

    def told() -> bool:
        samples = [decode(value, ReplicaSample) for value in world.records(topics.TELEMETRY)]
        mine = [sample for sample in samples if sample.replica == outcome.replica]
        return any((known.name, known.version) == ("german", "7") for sample in mine for known in sample.adapters)

    await world.until(told)


async def test_one_that_is_there_is_resident_and_touched(world, files: Path) -> None:
    await world.start()
    first = await ended(world, adapter(files))
    again = await ended(world, adapter(files))
    unnamed = await ended(world, adapter(None))
    for outcome in (again, unnamed):
        assert (outcome.status, outcome.reason, outcome.replica) == ("resident", "already_resident", first.replica)
    assert len(world.engines[first.replica].requests) == 3


async def test_samples_tell_which_adapters_probably_hold_a_slot(world, files: Path) -> None:
    for engine in world.engines.values():
        engine.adapter_slots = 1
    await world.start()
    first = await ended(world, adapter(files))
    names = ("r0", "r1")
    other = Adapter(name="other", version="1", source="/x")
    for replica in names:
        await ended(world, other, replicas=Replicas(names=(replica,)))

    def levels() -> dict[str, str]:
        samples = [decode(value, ReplicaSample) for value in world.records(topics.TELEMETRY)]
        mine = [sample for sample in samples if sample.replica == first.replica]
        return {known.name: known.level for known in mine[-1].adapters}

    await world.until(lambda: levels() == {"german": "named", "other": "gpu"})
    await ended(world, adapter(files))
    await world.until(lambda: levels() == {"german": "gpu", "other": "named"})
    assert world.engines[first.replica].on_gpu == ("german@7",)


async def test_other_weights_than_were_announced_are_not_loaded(world, files: Path) -> None:
    await world.start()
    (files / "adapter_model.safetensors").write_bytes(b"somebody else's")
    outcome = await ended(world, adapter(files))
    assert (outcome.status, outcome.reason) == ("failed", "digest_mismatch")
    assert hashlib.sha256(WEIGHTS).hexdigest() in outcome.error
    assert names(world) == []
    (files / "adapter_model.safetensors").write_bytes(WEIGHTS)
    assert (await ended(world, adapter(files))).status == "applied", "a digest is of the bytes that lie there now"


async def test_weights_that_change_under_the_load_are_taken_out_again(world, files: Path) -> None:
    await world.start()
    for engine in world.engines.values():

        async def load(name: str, path: str, load=engine.load_adapter, **kwargs) -> None:
            await load(name, path, **kwargs)
            (files / "adapter_model.safetensors").write_bytes(b"swapped")

        engine.load_adapter = load
    outcome = await ended(world, adapter(files))
    assert (outcome.status, outcome.reason) == ("failed", "digest_mismatch")
    assert names(world) == []


async def test_another_rank_than_was_announced_is_not_loaded(world, files: Path) -> None:
    await world.start()
    outcome = await ended(world, adapter(files, rank=16))
    assert (outcome.status, outcome.reason) == ("failed", "rank_mismatch")
    assert "8" in outcome.error
    assert names(world) == []


@pytest.mark.parametrize(
    ("announced", "told"),
    [
        ({"alpha": 32.0}, "lora_alpha 16.0, announced was 32.0"),
        ({"dropout": 0.1}, "lora_dropout 0.05, announced was 0.1"),
        ({"target_modules": ("q_proj",)}, "target_modules ('q_proj', 'v_proj'), announced was ('q_proj',)"),
    ],
)
async def test_another_structure_than_was_announced_is_not_loaded(world, files: Path, announced, told) -> None:
    config = {"r": 8, "lora_alpha": 16, "lora_dropout": 0.05, "target_modules": ["v_proj", "q_proj"]}
    (files / "adapter_config.json").write_text(json.dumps(config))
    await world.start()
    outcome = await ended(world, adapter(files, **announced))
    assert (outcome.status, outcome.reason) == ("failed", "structure_mismatch")
    assert told in outcome.error
    assert names(world) == []
    same = {"alpha": 16.0, "dropout": 0.05, "target_modules": ("q_proj", "v_proj")}
    assert (await ended(world, adapter(files, **same))).reason == "done"


async def test_a_configuration_that_tells_less_than_was_announced_speaks_against_nothing(world, files: Path) -> None:
    await world.start()
    told = {"alpha": 32.0, "dropout": 0.1, "target_modules": ("q_proj",)}
    assert (await ended(world, adapter(files, **told))).reason == "done"


async def test_a_source_that_is_missing_is_told_by_whoever_sees_it(world, files: Path) -> None:
    await world.start()
    (files / "adapter_config.json").unlink()
    empty = await ended(world, adapter(files))
    for engine in world.engines.values():
        engine.adapter_paths = frozenset({"/models/elsewhere"})
    unseen = await ended(world, adapter("/nowhere/at/all"))
    none = await ended(world, adapter(None))
    for outcome in (empty, unseen, none):
        assert (outcome.status, outcome.reason) == ("failed", "adapter_missing")
    assert names(world) == []


async def test_a_source_that_only_the_engine_sees_is_loaded_and_called_unverified(world) -> None:
    await world.start()
    outcome = await ended(world, adapter("/models/only/there"))
    assert (outcome.status, outcome.reason) == ("applied", "unverified")
    plain = Adapter(name="plain", version="1", source="/models/only/there")
    assert ((o := await ended(world, plain)).status, o.reason) == ("applied", "done"), "nothing was to be compared"


async def test_what_the_engine_refuses_ends_so(world, files: Path) -> None:
    await world.start()
    for engine in world.engines.values():
        await engine.load_adapter("german@7", "/another/path")
    outcome = await ended(world, adapter(files))
    assert (outcome.status, outcome.reason) == ("failed", "engine_refused")
    assert "another path" in outcome.error


async def test_an_engine_without_a_free_slot_refuses_and_goes_on(world, files: Path) -> None:
    await world.start()
    for engine in world.engines.values():
        engine.adapter_slots = 1
        await engine.load_adapter("busy", "/x")
        engine.delay_s = 3.0
    users = [asyncio.create_task(engine.probe("busy", request_id="user")) for engine in world.engines.values()]
    await asyncio.sleep(0.05)
    outcome = await ended(world, adapter(files))
    assert (outcome.status, outcome.reason) == ("failed", "engine_refused")
    assert "slots" in outcome.error
    await asyncio.gather(*users)
    assert names(world) == ["busy", "busy"]


async def test_a_passing_fault_is_tried_again_and_still_its_own_doing(world, files: Path) -> None:
    await world.start(telemetry_ms=60_000)
    for engine in world.engines.values():
        faults = [TransientFault("no answer")]

        async def load(name: str, path: str, load=engine.load_adapter, faults=faults, **kwargs) -> None:
            await load(name, path, **kwargs)
            if faults:
                raise faults.pop()

        engine.load_adapter = load
    outcome = await ended(world, adapter(files))
    assert (outcome.status, outcome.reason) == ("applied", "done")
    assert len(world.engines[outcome.replica].requests) == 1


async def test_an_unload_takes_the_name_away_and_can_be_repeated(world, files: Path) -> None:
    await world.start()
    loaded = await ended(world, adapter(files))
    gone = await ended(world, adapter(files), "unload")
    assert (gone.status, gone.reason, gone.action, gone.replica) == ("applied", "done", "unload", loaded.replica)
    assert names(world) == []
    again = await ended(world, adapter(files), "unload")
    assert (again.status, again.reason) == ("skipped", "already_absent")


@pytest.mark.slow
async def test_an_adapter_in_use_is_not_taken_away_under_its_requests(world, files: Path) -> None:
    await world.start()
    loaded = await ended(world, adapter(files))
    engine = world.engines[loaded.replica]
    engine.delay_s = 2 * DRAIN_S
    user = asyncio.create_task(engine.probe("german@7", request_id="user", timeout_s=60))
    await world.until(lambda: engine._busy)
    outcome = await ended(world, adapter(files), "unload")
    assert (outcome.status, outcome.reason) == ("skipped", "adapter_in_use")
    assert [known.name for known in await engine.adapters()] == ["german@7"]
    await user


async def test_a_pin_loads_and_keeps_or_is_unsupported(world, files: Path) -> None:
    await world.start()
    pinned = await ended(world, adapter(files), "pin")
    assert (pinned.status, pinned.reason) == ("applied", "done")
    assert world.engines[pinned.replica]._pinned == {"german@7"}
    for engine in world.engines.values():
        engine.pins = False
    other = await ended(world, Adapter(name="other", version="1", source="/x"), "pin")
    assert (other.status, other.reason) == ("rejected", "unsupported")


async def test_a_command_that_expires_meanwhile_loads_nothing(world, files: Path) -> None:
    await world.start()
    outcome = await ended(world, adapter(files), expires_at_ms=1)
    assert (outcome.status, outcome.reason) == ("expired", "expired_on_arrival")
    assert names(world) == []


async def test_an_action_that_no_adapter_knows_is_unsupported(world, files: Path) -> None:
    await world.start()
    outcome = await ended(world, adapter(files), "touch")
    assert (outcome.status, outcome.reason) == ("rejected", "unsupported")


async def test_a_sleeping_engine_is_left_asleep(world, files: Path) -> None:
    await world.start()
    for engine in world.engines.values():
        engine.fall_asleep()
    assert (await ended(world, adapter(files))).reason == "engine_sleeping"


async def test_a_cancel_closes_a_load_that_runs_and_drops_one_that_waits(world, files: Path) -> None:
    await world.start(concurrency=1)
    closed: list[str] = []

    async def load(name: str, _path: str, **_kwargs) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            closed.append(name)
            raise

    for engine in world.engines.values():
        engine.load_adapter = load
    first = command(world, adapter(files))
    second = command(world, adapter(files, rank=None))
    world.send(first)
    await world.until(lambda: [work for d in world.executors[0]._departments for work in d.workers._running])
    world.send(second)
    await asyncio.sleep(0.2)
    ids = (first.command_id, second.command_id)
    world.send(world.command(Cancel(command_ids=ids), cancel_key(ids), pool="gpu", action="cancel"))
    for sent in (first, second):
        assert (await world.outcome(sent)).status == "cancelled"
    assert closed == ["german@7"]


async def test_the_library_reads_a_digest_once_and_believes_only_real_folders(tmp_path: Path, files: Path) -> None:
    library = AdapterLibrary()
    first = await library.look(str(files), with_digest=True)
    assert first is not None
    assert (first.rank, first.sha256, first.bytes) == (8, hashlib.sha256(WEIGHTS).hexdigest(), len(WEIGHTS))
    assert await library.look(str(files), with_digest=True) == first
    assert len(library._digests) == 1
    assert await library.look("some/hub-name", with_digest=True) is None
    assert await library.look(str(tmp_path / "none"), with_digest=True) is None
    (files / "adapter_model.safetensors").unlink()
    assert (await library.look(str(files), with_digest=False)).stamp == ()
    with pytest.raises(NoAdapter):
        await library.look(str(files), with_digest=True)
    (files / "adapter_config.json").write_text("{not json")
    with pytest.raises(NoAdapter):
        await library.look(str(files), with_digest=False)


async def test_an_engine_whose_route_is_switched_off_is_unsupported(world, files: Path) -> None:
    await world.start()
    for engine in world.engines.values():
        engine.runtime_adapters = False
    assert (await ended(world, adapter(files))).reason == "unsupported"


async def test_an_error_of_the_engine_s_word_is_kept_short(world, files: Path) -> None:
    await world.start()

    async def load(*_args, **_kwargs) -> None:
        raise RefusedCommand("x" * 5_000)

    for engine in world.engines.values():
        engine.load_adapter = load
    assert len((await ended(world, adapter(files))).error) <= 256
