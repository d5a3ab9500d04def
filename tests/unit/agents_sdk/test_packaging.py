"""What the SDK's wheel holds, and what it may not."""

import ast
import sys
import tomllib
import zipfile
from pathlib import Path

import headrace
import pytest

from tests.testkit.sdk_wheel import AGENTS, build_sdk_wheel


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory):
    with zipfile.ZipFile(build_sdk_wheel(tmp_path_factory.mktemp("wheel"))) as wheel:
        return wheel.namelist()


def test_the_wheel_holds_the_package_headrace_and_nothing_beside_it(wheel_names):
    tops = {name.split("/")[0] for name in wheel_names}
    assert tops == {"headrace", f"headrace-{headrace.__version__}.dist-info"}


def test_the_wheel_holds_every_module_and_the_mark_of_types(wheel_names):
    expected = {f"headrace/{path.name}" for path in (AGENTS / "headrace").glob("*.py")}
    assert expected | {"headrace/py.typed"} <= set(wheel_names)


def test_the_folder_agents_is_no_package():
    # An installed top-level `agents` would overwrite the OpenAI Agents SDK, which has that name.
    assert not (AGENTS / "__init__.py").exists()


def test_the_version_is_the_same_in_both_places():
    assert tomllib.loads((AGENTS / "pyproject.toml").read_text())["project"]["version"] == headrace.__version__


def test_the_package_imports_nothing_but_itself_and_what_it_declares():
    allowed = {"headrace", "httpx", "websockets", *sys.stdlib_module_names}
    for path in (AGENTS / "headrace").rglob("*.py"):
        for name in imported(path):
            assert name.split(".")[0] in allowed, f"{path.name} imports {name}"


def imported(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=aliases):
                names += [alias.name for alias in aliases]
            case ast.ImportFrom(module=module, level=0):
                names.append(module)
            case ast.ImportFrom():
                raise AssertionError(f"{path.name} has a relative import")
    return names


def test_all_public_names_exist():
    assert sorted(headrace.__all__) == sorted(set(headrace.__all__))
    for name in headrace.__all__:
        assert getattr(headrace, name)
