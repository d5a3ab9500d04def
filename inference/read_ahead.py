"""Prepares what an engine is about to load, while its process does what comes before.

On a machine just started, an engine's process waits for the disk again and again, for thousands of small files one
after another; and where packages were installed without bytecode, as some installers do, it compiles two thousand
modules first. Both can be done beside it by others. Run as `python -m inference.read_ahead DEVICE`. What is read is
dropped, as the kernel keeps it; bytecode is written where Python itself would write it; whatever cannot be read,
written or compiled is passed over. Where nothing is to be done it ends within a tenth of a second.
"""

from __future__ import annotations

import importlib.util
import os
import py_compile
import struct
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

Task = Callable[[], None]

# In the order of their import, and of each what almost every start loads. Torch begins with the libraries in nvidia;
# the last three Transformers imports where they are installed.
_IMPORTED_LATER = (
    "numpy", "transformers", "huggingface_hub", "accelerate", "sympy", "mpmath", "scipy", "PIL", "torchvision"
)  # fmt: skip
_PACKAGES = {"cpu": ("torch", *_IMPORTED_LATER), "cuda": ("nvidia", "torch", "triton", *_IMPORTED_LATER)}
_UNUSED_FOLDERS = frozenset((
    "_export", "_inductor", "cli", "codegen", "combinatorics", "distutils", "exporters", "f2py", "include",
    "liealgebras", "onnx", "parsing", "physics", "pipelines", "polynomial", "stats", "testing", "tests", "vector",
))  # fmt: skip
_UNUSED_MODULES = ("convert_", "modular_")
# Libraries that are opened when something asks for them, which we do not.
_UNUSED_LIBRARIES = ("libcudnn_", "libcusolver", "libnvrtc", "libnvblas", "libnvperf", "libpcsampling", "libcheckpoint")
# Of a library's sections those are read that the dynamic linker reads (System V gABI, ch. 4): symbols, strings,
# relocations, hashes, versions, and what is relocated. The rest is code, of which a start runs little.
_LINKED_KINDS = frozenset((2, 3, 4, 5, 6, 9, 11, 0x6FFFFFF6, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF))
_NO_BITS, _WRITABLE, _ALLOCATED = 8, 1, 2
# Many at a time wait for the disk, and the engine's process goes before them where there are too few cores.
_WORKERS, _NICENESS = 16, 19


def main(argv: list[str]) -> int:
    folders = [folder for name in _PACKAGES[argv[0]] for folder in package_folders(name)]
    if not is_prepared(folders):
        run_all([task for folder in folders for task in tasks_of(folder)])
    return 0


def package_folders(name: str) -> list[Path]:
    """Where a top-level package lies, found without importing it."""
    spec = importlib.util.find_spec(name)
    return [Path(place) for place in spec.submodule_search_locations or ()] if spec is not None else []


def is_prepared(folders: Iterable[Path]) -> bool:
    """Whether the folders' own modules have bytecode, and as far as the system tells all of it is cached."""
    modules = (folder / name for folder in folders for name in os.listdir(folder) if _is_module(name))
    return all(is_cached(bytecode_of(module)) for module in modules)


def is_cached(path: Path) -> bool:
    """Whether the middle of a file is in the page cache; False where the file is missing or nobody can tell."""
    try:
        with path.open("rb", buffering=0) as file:
            os.preadv(file.fileno(), [bytearray(1)], path.stat().st_size // 2, os.RWF_NOWAIT)
        return True
    except (OSError, AttributeError):
        return False


def bytecode_of(module: Path) -> Path:
    return Path(importlib.util.cache_from_source(str(module)))


def run_all(tasks: list[Task]) -> None:
    """In processes, dealt out in turn: threads would wait for each other. They end with this one."""
    parent = os.getpid()
    children = []
    for number in range(_WORKERS):
        child = os.fork()
        if child == 0:
            _run_in_child(tasks[number::_WORKERS], parent)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def _run_in_child(tasks: list[Task], parent: int) -> None:
    """Ends the process: between tasks and never within one, so that no file is left half written."""
    try:
        os.nice(_NICENESS)
        for task in tasks:
            if os.getppid() != parent:
                break
            task()
    finally:
        os._exit(0)


def tasks_of(package: Path) -> list[Task]:
    """One a folder of the package, since listing folders takes its time too; the package's own modules come first."""
    tasks: list[Task] = [partial(_prepare, package, os.listdir(package), compile_or_read)]
    for folder in _subfolders(package):
        if folder.parts[-2:] == ("transformers", "models"):
            # It reads the sources of all its models to find their names.
            tasks += [partial(_prepare_tree, model, read_whole) for model in _subfolders(folder)]
        else:
            tasks.append(partial(_prepare_tree, folder, compile_or_read))
    return tasks


def _subfolders(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return [Path(entry) for entry in entries if entry.is_dir() and entry.name not in _UNUSED_FOLDERS]


def _prepare_tree(top: Path, prepare_module: Callable[[Path], None]) -> None:
    for root, subfolders, names in os.walk(top):
        subfolders[:] = [name for name in subfolders if name not in _UNUSED_FOLDERS]
        _prepare(Path(root), names, prepare_module)


def _prepare(folder: Path, names: Iterable[str], prepare_module: Callable[[Path], None]) -> None:
    for name in names:
        if ".so" in name and not name.startswith(_UNUSED_LIBRARIES):
            read_linked(folder / name)
        elif _is_module(name):
            prepare_module(folder / name)


def _is_module(name: str) -> bool:
    return name.endswith(".py") and not name.startswith(_UNUSED_MODULES)


def compile_or_read(module: Path) -> None:
    """Afterwards what Python loads of it is cached: bytecode, unless none may be written."""
    bytecode = bytecode_of(module)
    with suppress(OSError, ValueError, py_compile.PyCompileError):
        if bytecode.exists() or sys.dont_write_bytecode:
            read_whole(bytecode if bytecode.exists() else module)
        else:
            py_compile.compile(str(module), doraise=True)


def read_whole(path: Path) -> None:
    with suppress(OSError):
        path.read_bytes()


def read_linked(path: Path) -> None:
    # What is no library may say that it has sections of any size, anywhere.
    with suppress(OSError, OverflowError, MemoryError, struct.error), path.open("rb", buffering=0) as file:
        for start, num_bytes in linked_ranges(file.fileno()):
            os.pread(file.fileno(), num_bytes, start)


def linked_ranges(descriptor: int) -> list[tuple[int, int]]:
    """First byte and number of bytes of each section that the dynamic linker reads; none unless a 64-bit ELF file."""
    header = os.pread(descriptor, 64, 0)
    if header[:6] != b"\x7fELF\x02\x01":
        return []
    (table,) = struct.unpack_from("<Q", header, 40)
    entry_bytes, count = struct.unpack_from("<HH", header, 58)
    entries = os.pread(descriptor, entry_bytes * count, table)
    found = []
    for index in range(count):
        _, kind, flags, _, offset, size = struct.unpack_from("<IIQQQQ", entries, entry_bytes * index)
        if kind != _NO_BITS and flags & _ALLOCATED and (kind in _LINKED_KINDS or flags & _WRITABLE):
            found.append((offset, size))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
