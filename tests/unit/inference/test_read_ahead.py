"""What is prepared of packages before they are imported. The packages are small ones on disk."""

import importlib.util
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from inference import read_ahead
from inference.read_ahead import (
    bytecode_of,
    compile_or_read,
    is_prepared,
    linked_ranges,
    read_linked,
    read_whole,
    tasks_of,
)

ROOT = Path(__file__).parents[3]
ELF = b"\x7fELF\x02\x01"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Packages torch and transformers, of a few files each."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for name in (
        "torch/__init__.py", "torch/nn/__init__.py", "torch/nn/deep/__init__.py", "torch/_inductor/compiler.py",
        "torch/testing/tools.py", "torch/nn/not_python.txt", "transformers/__init__.py", "transformers/convert_old.py",
        "transformers/utils/hub.py", "transformers/models/__init__.py", "transformers/models/llama/modeling_llama.py",
        "transformers/models/llama/modular_llama.py",
    ):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("answer = 42\n")
    return tmp_path


def prepare(folder):
    for task in tasks_of(folder):
        task()


def compiled(folder):
    return sorted(path.name.partition(".")[0] for path in folder.rglob("*.pyc"))


def test_what_a_start_loads_gets_bytecode_that_python_takes(package):
    prepare(package / "torch")
    assert compiled(package / "torch") == ["__init__", "__init__", "__init__"]
    module = package / "torch" / "nn" / "__init__.py"
    spec = importlib.util.spec_from_file_location("prepared", module)
    before = bytecode_of(module).stat().st_mtime_ns
    spec.loader.exec_module(loaded := importlib.util.module_from_spec(spec))
    assert loaded.answer == 42
    assert bytecode_of(module).stat().st_mtime_ns == before


def test_of_transformers_models_the_sources_are_read_and_nothing_is_compiled(package, monkeypatch):
    read = []
    monkeypatch.setattr(read_ahead, "read_whole", read.append)
    prepare(package / "transformers")
    assert [path.name for path in read] == ["modeling_llama.py"]
    assert compiled(package / "transformers") == ["__init__", "hub"]


def test_what_has_bytecode_is_read_and_not_compiled_again(package, monkeypatch):
    prepare(package / "torch")
    read = []
    monkeypatch.setattr(read_ahead, "read_whole", read.append)
    monkeypatch.setattr(read_ahead.py_compile, "compile", lambda *args, **options: pytest.fail("compiled again"))
    prepare(package / "torch")
    assert sorted(path.name.partition(".")[0] for path in read) == ["__init__", "__init__", "__init__"]
    assert {path.suffix for path in read} == {".pyc"}


def test_where_no_bytecode_may_be_written_sources_are_read(package, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    read = []
    monkeypatch.setattr(read_ahead, "read_whole", read.append)
    prepare(package / "torch")
    assert {path.suffix for path in read} == {".py"}
    assert compiled(package / "torch") == []


def test_a_package_is_prepared_once_its_own_modules_have_bytecode(package):
    folders = [package / "torch", package / "transformers"]
    assert not is_prepared(folders)
    for folder in folders:
        prepare(folder)
    if not hasattr(os, "RWF_NOWAIT"):
        pytest.skip("this system does not tell what is cached")
    assert is_prepared(folders)
    bytecode_of(package / "torch" / "__init__.py").unlink()
    assert not is_prepared(folders)


@pytest.mark.parametrize("prepare_file", [compile_or_read, read_whole, read_linked])
@pytest.mark.parametrize(
    "content",
    [None, b"", b"def :", b"\0" * 100, ELF, ELF + b"\xff" * 80],
    ids=["missing", "empty", "wrong", "zeros", "short", "odd"],
)
def test_what_cannot_be_read_or_compiled_is_passed_over(package, prepare_file, content):
    path = package / "strange.py"
    if content is not None:
        path.write_bytes(content)
    prepare_file(path)
    assert compiled(package) == (["strange"] if prepare_file is compile_or_read and content == b"" else [])


def test_of_a_library_those_sections_are_read_that_the_linker_reads(tmp_path):
    allocated, writable, code = 2, 1, 4
    sections = [  # type, flags, offset, bytes
        (0, 0, 0, 0),
        (11, allocated, 64, 10),  # symbols
        (4, allocated, 80, 24),  # relocations
        (1, allocated | code, 128, 1000),  # code
        (1, allocated, 2000, 5000),  # code for a device
        (1, allocated | writable, 7000, 16),  # data
        (8, allocated | writable, 7016, 1 << 30),  # zeros, not in the file
        (3, 0, 7100, 50),  # the debugger's strings
    ]
    table = 8000
    header = struct.pack("<6s34xQ10xHHH", ELF, table, 64, len(sections), 0).ljust(64, b"\0")
    entries = [struct.pack("<IIQQQQ", 0, kind, flags, 0, at, size) for kind, flags, at, size in sections]
    path = tmp_path / "libtorch.so"
    path.write_bytes(header.ljust(table, b"\0") + b"".join(entry.ljust(64, b"\0") for entry in entries))
    with path.open("rb") as file:
        assert linked_ranges(file.fileno()) == [(64, 10), (80, 24), (7000, 16)]


def test_every_task_runs_once():
    code = (
        "import os; from functools import partial; from inference.read_ahead import run_all;"
        "run_all([partial(os.write, 1, b'%d ' % number) for number in range(40)])"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, check=True, cwd=ROOT)
    assert sorted(map(int, done.stdout.split())) == list(range(40))


def test_the_processes_end_with_the_one_that_started_them():
    code = (
        "import os, time; from inference.read_ahead import run_all;"
        "run_all([lambda: (os.write(1, b'.'), time.sleep(0.02))] * 100_000)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT) as parent:
        assert parent.stdout.read(1) == b"."
        parent.kill()
        parent.stdout.read()  # until the last process that could write to it is gone


def test_packages_are_found_without_their_import():
    code = (
        "import sys; from inference.read_ahead import package_folders;"
        "print(package_folders('torch')[0].name, package_folders('no_such_package'), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["torch", "[]", "False"]


@pytest.mark.parametrize(
    ("device", "expected"), [("cpu", ["torch", "scipy"]), ("cuda", ["nvidia", "torch", "triton", "scipy"])]
)
def test_what_is_installed_is_read_in_the_order_of_its_import(device, expected, monkeypatch):
    installed, given = {"scipy", "torch", "triton", "nvidia"}, []
    monkeypatch.setattr(read_ahead, "package_folders", lambda name: [Path(name)] if name in installed else [])
    monkeypatch.setattr(read_ahead, "is_prepared", lambda folders: False)
    monkeypatch.setattr(read_ahead, "tasks_of", lambda folder: [folder.name])
    monkeypatch.setattr(read_ahead, "run_all", given.extend)
    assert read_ahead.main([device]) == 0
    assert given == expected
