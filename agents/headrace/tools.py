"""Functions as tools: `@tool` reads the schema off the annotations, `Tool.invoke` runs the function on a model's text.

Knows nothing of turns and of conversations.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import enum
import functools
import inspect
import json
import re
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar, overload

from headrace.docstrings import parse_docstring
from headrace.errors import ToolDefinitionError, ToolError
from headrace.shapes import Schema, SchemaWriter
from headrace.signatures import beneath, parameters_shape

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What goes back to the model. `is_error`: the tool could not be run or raised."""

    content: str
    is_error: bool


class Tool(Generic[P, R]):
    """A function that a model may call. Calling the tool calls the function, with Python arguments as ever.

    `parameters` is the JSON Schema of its arguments, written when the tool is made; `to_openai()` is its entry in
    `tools`.
    """

    def __init__(self, function: Callable[P, R], *, name: str | None = None, description: str | None = None) -> None:
        documented = function.func if isinstance(function, functools.partial) else function
        docstring = parse_docstring(inspect.getdoc(documented))
        self.name = name if name is not None else getattr(function, "__name__", "")
        if not _NAME.match(self.name):
            raise ToolDefinitionError(f"{self.name!r} is no tool's name: give one of 1 to 64 letters, digits, _ and -")
        self.function = function
        self.description = docstring.text if description is None else description
        self._shape = parameters_shape(function, docstring)
        self.parameters: Schema = SchemaWriter().root(self._shape)
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    def to_openai(self) -> dict[str, object]:
        described = {"description": self.description} if self.description else {}
        return {"type": "function", "function": {"name": self.name, **described, "parameters": self.parameters}}

    async def invoke(self, arguments: str, executor: Executor | None = None) -> ToolOutput:
        """Run the function on JSON text. Whatever goes wrong is an output that says so, in words for the model.

        A plain function runs on a thread of `executor` (default: the event loop's own), in a copy of the caller's
        context. Cancelling this cancels an async function; a plain one can't be stopped and is left alone.
        """
        try:
            values = self._read(arguments)
            result = await self._call(values, executor)
            return ToolOutput(_to_text(result), is_error=False)
        except ToolError as error:
            return ToolOutput(f"Error: {error.message}", is_error=True)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return ToolOutput("Error: the tool was cancelled", is_error=True)
        except Exception as error:
            return ToolOutput(f"Error: {type(error).__name__}: {error}", is_error=True)

    def _read(self, arguments: str) -> dict[str, object]:
        try:
            # No arguments at all is how some models call a function that takes none.
            parsed = json.loads(arguments if arguments.strip() else "{}")
            problems: list[str] = []
            values = self._shape.read(parsed, "", problems)
        except (ValueError, RecursionError) as error:
            raise ToolError(f"the arguments of {self.name} are no valid JSON: {error}") from error
        if problems:
            raise ToolError(f"invalid arguments for {self.name}: {'; '.join(problems)}")
        assert isinstance(values, dict)
        return values

    async def _call(self, values: dict[str, object], executor: Executor | None) -> object:
        positional = [
            values.pop(parameter.name, parameter.default)
            for parameter in inspect.signature(self.function).parameters.values()
            if parameter.kind is parameter.POSITIONAL_ONLY
        ]
        function: Callable[..., Any] = self.function
        call = functools.partial(function, *positional, **values)
        if inspect.iscoroutinefunction(beneath(function)):
            return await call()
        context = contextvars.copy_context()
        result, error = await asyncio.get_running_loop().run_in_executor(executor, context.run, _caught, call)
        if error is not None:
            raise error
        return await result if inspect.isawaitable(result) else result


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(*, name: str | None = None, description: str | None = None) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None, /, *, name: str | None = None, description: str | None = None
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a typed function, plain or async, a tool; `name` and `description` default to its own.

        @tool
        def weather(city: str, unit: Literal["C", "F"] = "C") -> str:
            '''Tell the weather.

            Args:
                city: A city's name.
            '''

    Raises ToolDefinitionError where a parameter has no annotation, or one that has no JSON Schema.
    """
    if function is not None:
        return Tool(function, name=name, description=description)
    return lambda decorated: Tool(decorated, name=name, description=description)


def _caught(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    # Handed over as a value: a future never ends on a StopIteration that is raised into it.
    try:
        return call(), None
    except Exception as error:
        return None, error


def _to_text(result: object) -> str:
    """Text as it is; anything else as JSON, and what JSON can't say as Python's text of it."""
    if isinstance(result, str):
        return result
    try:
        return json.dumps(result, default=_jsonable, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(result)


def _jsonable(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value)
