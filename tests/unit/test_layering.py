"""Imports follow the data flow: each package knows only what stands below it. Read from the syntax tree, not run."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STDLIB = set(sys.stdlib_module_names)
OURS = ("stream_parser", "inference", "gateway", "headrace")
NO_TORCH = ("torch", "transformers", "triton")
INFERENCE_DATA = (
    "inference.step", "inference.types", "inference.config", "inference.errors", "inference.mask_ledger",
    "inference.processors", "inference.shared_masks",
)

# package -> (our modules it may import, outside modules it may not, or None for "standard library only")
RULES: dict[str, tuple[tuple[str, ...], tuple[str, ...] | None]] = {
    "stream_parser": (("stream_parser",), None),
    "inference.paged_kv": (("inference.paged_kv",), (*NO_TORCH, "asyncio")),
    "inference.runner": (
        ("inference.paged_kv", "inference.runner", *INFERENCE_DATA), ("asyncio", "starlette", "uvicorn", "websockets"),
    ),
    "inference.grammar": (
        ("inference.grammar", "inference.errors", "inference.processors", "stream_parser"),
        (*NO_TORCH, "tokenizers", "asyncio", "starlette", "uvicorn", "websockets"),
    ),
    "inference": (("inference", "stream_parser"), ("starlette", "uvicorn", "websockets")),
    "gateway.protocols": (
        ("gateway.protocols", "gateway.types", "gateway.errors", "stream_parser", "inference.types"),
        (*NO_TORCH, "asyncio", "starlette", "uvicorn", "websockets"),
    ),
    "gateway": (("gateway", "inference", "stream_parser"), NO_TORCH),
    "headrace": (("headrace",), (*NO_TORCH, "starlette", "uvicorn")),
}
# One file each: the tensors behind the block ids, and the command that starts the SDK's terminal chat.
EXCEPTIONS = {"inference.paged_kv.pool": {"torch"}, "gateway.cli": {"headrace"}}
# Modules of `inference` that only the engine's own process loads, and so may lead to torch.
ENGINE_PROCESS = (
    "inference.runner", "inference.engine_process", "inference.engine_start", "inference.gguf_convert",
    "inference.grammars",
    "inference.paged_kv.pool",
)  # fmt: skip


def _modules() -> dict[str, Path]:
    paths = {}
    for base in (ROOT, ROOT / "agents"):
        for package in OURS:
            for path in (base / package).rglob("*.py"):
                name = ".".join(path.relative_to(base).with_suffix("").parts)
                paths[name.removesuffix(".__init__")] = path
    return paths


def _imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            base = node.module or ""
            # `from package import module` names the module; anything else names what is inside `package`.
            found += [f"{base}.{alias.name}" if _is_module(f"{base}.{alias.name}") else base for alias in node.names]
    return found


def _is_module(name: str) -> bool:
    parts = name.split(".")
    return any((base.joinpath(*parts).with_suffix(".py")).exists() for base in (ROOT, ROOT / "agents"))


def _rule(module: str) -> str:
    return max((package for package in RULES if _within(module, package)), key=len)


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


@pytest.mark.parametrize("module", sorted(_modules()))
def test_a_module_imports_only_what_stands_below_it(module: str) -> None:
    may_import, forbidden = RULES[_rule(module)]
    allowed = EXCEPTIONS.get(module, set())
    for name in _imports(_modules()[module]):
        top = name.split(".")[0]
        if top in allowed or top == "__future__":
            continue
        if top in OURS:
            assert any(_within(name, package) for package in may_import), f"{module} imports {name}"
        elif forbidden is None:
            assert top in STDLIB, f"{module} imports {name}; it may use the standard library only"
        else:
            assert top not in forbidden, f"{module} imports {name}"


def test_no_imports_go_round_in_a_circle() -> None:
    modules = _modules()
    graph = {name: {to for to in _imports(path) if to in modules} for name, path in modules.items()}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail, module))
        if module not in done:
            for target in graph[module]:
                visit(target, (*trail, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_the_gateway_reaches_no_torch_through_others() -> None:
    modules = _modules()
    seen: set[str] = set()
    waiting = [name for name in modules if _within(name, "gateway")]
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        assert not any(_within(module, package) for package in ENGINE_PROCESS), f"the gateway would load {module}"
        for name in _imports(modules[module]):
            assert name.split(".")[0] not in NO_TORCH, f"{module} imports {name}"
            waiting += [name] if name in modules else []


def test_the_table_covers_every_module_and_the_sdk_has_no_package_beside_it() -> None:
    modules = _modules()
    assert len(modules) > 40
    assert {_rule(module) for module in modules} == set(RULES)
    assert not (ROOT / "agents" / "__init__.py").exists()
