"""The export: repeatable, complete or absent, and never trusted blindly."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from connectors.encoders import build_encoder
from connectors.encoders.export import PRECISIONS, export, main
from connectors.encoders.graph import BertShape
from connectors.encoders.manifest import MANIFEST_FILE, MODEL_FILE, TOKENIZER_FILE, read_manifest
from connectors.encoders.onnx import OnnxEncoder
from connectors.encoders.source import model_folder
from connectors.settings import EncoderSettings
from schemas.errors import BrokenConfiguration

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("model") / "deep" / "minilm"
    assert export(out, "int8")
    return out


@pytest.fixture
def copy(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "copy"))


def test_second_run_finds_its_work_done(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in (exported / "int8").iterdir()}
    assert set(before) == {MODEL_FILE, TOKENIZER_FILE, MANIFEST_FILE}
    assert main(["--out", str(exported), "--precision", "int8"]) == 0
    assert "up to date" in capsys.readouterr().out
    assert {path.name: path.stat().st_mtime_ns for path in (exported / "int8").iterdir()} == before
    assert [path.name for path in exported.iterdir()] == ["int8"]


def test_every_precision_is_made_unless_one_is_named(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BrokenConfiguration, match=r"--out \S+copy --precision fp32"):
        build_encoder(EncoderSettings(model=copy, precision="fp32"))
    assert main(["--out", str(copy)]) == 0
    assert [line.rsplit(": ")[1] for line in capsys.readouterr().out.splitlines()] == ["made", "up to date"]
    assert {read_manifest(copy, precision).precision for precision in PRECISIONS} == {"fp32", "int8"}


def test_model_of_another_precision_is_noticed_and_made_anew(copy: Path) -> None:
    (copy / "int8").rename(copy / "fp32")
    with pytest.raises(BrokenConfiguration, match=r"encoder\.precision.* of int8; .*--precision fp32"):
        OnnxEncoder(copy, "fp32")
    assert export(copy, "fp32")
    assert read_manifest(copy, "fp32").precision == "fp32"


def test_weights_are_small_enough_for_processors_that_saturate(exported: Path) -> None:
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(exported / "int8" / MODEL_FILE).graph
    weights = [numpy_helper.to_array(value) for value in graph.initializer if value.data_type == onnx.TensorProto.INT8]
    assert len(weights) == 6 * 4
    assert {int(np.abs(value).max()) for value in weights} == {63}
    assert np.iinfo(np.int16).max >= 2 * 255 * 63


def test_manifest_tells_what_was_made(exported: Path) -> None:
    manifest = read_manifest(exported, "int8")
    assert (manifest.dimension, manifest.positions, manifest.precision) == (384, 512, "int8")
    assert (exported / "int8" / TOKENIZER_FILE).read_bytes() == (model_folder() / TOKENIZER_FILE).read_bytes()


@pytest.mark.parametrize("name", [MODEL_FILE, TOKENIZER_FILE])
def test_changed_file_is_noticed_and_made_anew(copy: Path, name: str) -> None:
    with (copy / "int8" / name).open("ab") as file:
        file.write(b"x")
    with pytest.raises(BrokenConfiguration, match="was changed"):
        OnnxEncoder(copy, "int8")
    assert export(copy, "int8")
    read_manifest(copy, "int8")


def test_export_that_was_interrupted_is_no_export(copy: Path) -> None:
    (copy / "int8" / MANIFEST_FILE).unlink()
    with pytest.raises(BrokenConfiguration, match=r"python -m connectors\.encoders\.export"):
        build_encoder(EncoderSettings(model=copy, precision="int8"))
    (copy / "int8" / MANIFEST_FILE).write_text("{")
    with pytest.raises(BrokenConfiguration, match=MANIFEST_FILE):
        read_manifest(copy, "int8")


def test_export_of_an_older_graph_is_made_anew(copy: Path) -> None:
    old = msgspec.structs.replace(read_manifest(copy, "int8"), export_version=0)
    (copy / "int8" / MANIFEST_FILE).write_bytes(msgspec.json.encode(old))
    with pytest.raises(BrokenConfiguration, match="another version"):
        read_manifest(copy, "int8")


def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "int8").mkdir()
    (tmp_path / "int8" / "mine.txt").write_text("mine")
    assert export(tmp_path, "int8")
    assert (tmp_path / "int8" / "mine.txt").read_text() == "mine"


def test_folder_that_cannot_be_made_ends_with_status_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["--out", str(tmp_path / "file" / "model")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_token_limit_beyond_the_model_is_refused(copy: Path) -> None:
    with pytest.raises(BrokenConfiguration, match="max_tokens"):
        OnnxEncoder(copy, "int8", max_tokens=513)


def test_other_kinds_of_bert_are_refused() -> None:
    config = json.loads((model_folder() / "config.json").read_text())
    assert BertShape.of(config).layers == 6
    with pytest.raises(ValueError, match="hidden_act"):
        BertShape.of({**config, "hidden_act": "relu"})


def test_export_and_encoding_need_no_torch(exported: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from connectors.encoders.export import export\n"
        "from connectors.encoders.onnx import OnnxEncoder\n"
        f"folder = Path({str(exported)!r}); export(folder, 'int8'); OnnxEncoder(folder, 'int8').encode(['a text'])\n"
        "assert 'torch' not in sys.modules and 'sentence_transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3], timeout=120)
