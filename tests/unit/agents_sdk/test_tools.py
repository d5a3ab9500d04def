"""What `@tool` makes of a function: its schema, and what it does with a model's arguments."""

import asyncio
import contextvars
import dataclasses
import datetime
import enum
import functools
import json
import pathlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, Required, TypedDict, TypeVar, Union

import pytest
from headrace import Tool, ToolDefinitionError, ToolError, tool
from jsonschema import Draft202012Validator

from tests.unit.agents_sdk import postponed_annotations as postponed


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Shape(enum.Enum):
    ROUND = (1, 2)
    FLAT = (3, 4)


@dataclasses.dataclass
class Point:
    """A place on the map.

    Attributes:
        x: Metres to the east.
    """

    x: float
    y: float = 0.0
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Positive:
    value: int

    def __post_init__(self) -> None:
        if self.value <= 0:
            raise ValueError("value must be positive")


@dataclasses.dataclass
class Scaled:
    value: int
    factor: dataclasses.InitVar[int]

    def __post_init__(self, factor: int) -> None:
        self.value *= factor


@dataclasses.dataclass
class Tree:
    name: str
    children: "list[Tree]" = dataclasses.field(default_factory=list)


class Query(TypedDict, total=False):
    text: Required[str]
    limit: int


class Strict(TypedDict):
    text: str
    limit: NotRequired[int]


UserId = NewType("UserId", int)
T = TypeVar("T")


def schema_of(annotation):
    """The schema of one parameter of that type."""

    def function(value): ...

    function.__annotations__ = {"value": annotation}
    schema = Tool(function).parameters
    Draft202012Validator.check_schema(schema)
    return schema["properties"]["value"]


async def value_of(annotation, argument):
    """What a function gets for a JSON value, or the error that the model gets."""
    received = []

    def function(value):
        received.append(value)

    function.__annotations__ = {"value": annotation}
    output = await Tool(function).invoke(json.dumps({"value": argument}))
    return output.content if output.is_error else received[0]


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, "b", None], {"enum": [1, "b", None]}),
        (Literal[Color.RED], {"type": "string", "enum": ["red"]}),
        (Color, {"type": "string", "enum": ["red", "blue"]}),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (Shape, {"type": "string", "enum": ["ROUND", "FLAT"]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),  # noqa: UP007
        (list, {"type": "array", "items": {}}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (list[list[int]], {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}),
        (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        ),
        (tuple, {"type": "array", "items": {}}),
        (dict, {"type": "object", "additionalProperties": {}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Mapping[str, Any], {"type": "object", "additionalProperties": {}}),
        (
            dict[Color, int],
            {
                "type": "object",
                "propertyNames": {"type": "string", "enum": ["red", "blue"]},
                "additionalProperties": {"type": "integer"},
            },
        ),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (list[Annotated[int, "not shown"]], {"type": "array", "items": {"type": "integer"}}),
        (UserId, {"type": "integer"}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (datetime.date, {"type": "string", "format": "date"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (pathlib.Path, {"type": "string"}),
        (
            Query,
            {
                "type": "object",
                "properties": {"text": {"type": "string"}, "limit": {"type": "integer"}},
                "required": ["text"],
                "additionalProperties": False,
            },
        ),
        (
            Strict,
            {
                "type": "object",
                "properties": {"text": {"type": "string"}, "limit": {"type": "integer"}},
                "required": ["text"],
                "additionalProperties": False,
            },
        ),
        (
            Point,
            {
                "type": "object",
                "description": "A place on the map.",
                "properties": {
                    "x": {"type": "number", "description": "Metres to the east."},
                    "y": {"type": "number", "default": 0.0},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["x"],
                "additionalProperties": False,
            },
        ),
        (
            Scaled,
            {
                "type": "object",
                "properties": {"value": {"type": "integer"}, "factor": {"type": "integer"}},
                "required": ["value", "factor"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_an_annotation_has_its_schema(annotation, schema):
    assert schema_of(annotation) == schema


@pytest.mark.parametrize(
    "annotation", [bytes, complex, dict[int, str], Literal[b"x"], T, list[T], type, enum.Enum, "X"]
)
def test_what_has_no_schema_is_refused_when_the_tool_is_made(annotation):
    with pytest.raises(ToolDefinitionError):
        schema_of(annotation)


def test_an_object_that_contains_itself_is_defined_once():
    @tool
    def plant(tree: Tree, spare: Tree | None = None) -> str:
        return tree.children[0].name

    Draft202012Validator.check_schema(plant.parameters)
    assert list(plant.parameters["$defs"]) == ["Tree"]
    assert plant.parameters["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    validator = Draft202012Validator(plant.parameters)
    assert validator.is_valid({"tree": {"name": "a", "children": [{"name": "b", "children": []}]}})
    assert not validator.is_valid({"tree": {"name": "a", "children": [{"name": 1}]}})
    assert asyncio.run(plant.invoke('{"tree": {"name": "a", "children": [{"name": "b"}]}}')).content == "b"


def test_two_objects_of_one_name_have_two_definitions():
    def linked() -> type:
        node = dataclasses.make_dataclass("Node", [("next", object)])
        node.__annotations__["next"] = node | None
        node.__init__.__annotations__["next"] = node | None
        return node

    def function(a, b): ...

    function.__annotations__ = {"a": linked(), "b": linked()}
    assert list(Tool(function).parameters["$defs"]) == ["Node", "Node_2"]


def test_name_and_text_come_from_the_function():
    @tool
    def weather(city: str, unit: Literal["C", "F"] = "C", *, days: int | None = None) -> str:
        """Tell the weather.

        It never rains.

        Args:
            city: A city's name,
                in English.
            unit (str): Of the temperature.

        Returns:
            Not for the model.
        """
        return city

    assert weather.to_openai() == {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tell the weather.\n\nIt never rains.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "A city's name, in English."},
                    "unit": {
                        "type": "string",
                        "enum": ["C", "F"],
                        "description": "Of the temperature.",
                        "default": "C",
                    },
                    "days": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
                },
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    assert weather("Oslo") == "Oslo"
    assert weather.__doc__.startswith("Tell the weather.")


def test_name_and_text_can_be_given():
    @tool(name="other-name", description="Other text.")
    def function() -> None:
        """Text."""

    assert function.to_openai()["function"]["name"] == "other-name"
    assert function.to_openai()["function"]["description"] == "Other text."


def test_a_function_without_parameters_has_an_empty_object():
    @tool
    def now() -> str:
        return "now"

    empty = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert now.to_openai()["function"] == {"name": "now", "parameters": empty}


def test_annotations_given_as_text_are_resolved():
    assert postponed.search.parameters["properties"]["query"]["required"] == ["text"]
    assert postponed.search.parameters["properties"]["sort"] == {"type": "string", "enum": ["up", "down"]}
    output = asyncio.run(postponed.search.invoke('{"query": {"text": "a"}, "sort": "up"}'))
    assert output.content == "a up"


def test_an_annotation_that_can_not_be_resolved_is_refused_by_name():
    def function(value: "Missing"): ...  # noqa: F821

    with pytest.raises(ToolDefinitionError, match="Missing"):
        tool(function)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: None, "<lambda>"),
        (lambda value: None, "<lambda>"),
        (functools.partial(print), "no tool's name"),
    ],
)
def test_a_function_without_a_usable_name_is_refused(function, message):
    with pytest.raises(ToolDefinitionError, match=message):
        tool(function)


def test_parameters_that_a_model_can_not_fill_are_refused():
    def starred(*values: int): ...

    def double_starred(**values: int): ...

    def bare(value): ...

    for function, message in ((starred, r"\*values"), (double_starred, r"\*\*values"), (bare, "'value' .* no annot")):
        with pytest.raises(ToolDefinitionError, match=message):
            tool(function)


@pytest.mark.parametrize(
    ("annotation", "argument", "value"),
    [
        (str, "a", "a"),
        (int, 5, 5),
        (int, 5.0, 5),
        (float, 5, 5.0),
        (bool, True, True),
        (None, None, None),
        (Any, {"a": [1]}, {"a": [1]}),
        (Literal["a", 1], 1, 1),
        (Literal[Color.RED], "red", Color.RED),
        (Color, "blue", Color.BLUE),
        (Level, 2, Level.HIGH),
        (Shape, "FLAT", Shape.FLAT),
        (int | str, "5", "5"),
        (int | None, None, None),
        (list[int], [1, 2], [1, 2]),
        (set[int], [1, 2, 1], {1, 2}),
        (frozenset[str], ["a"], frozenset("a")),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[int, ...], [1, 2], (1, 2)),
        (dict[str, Color], {"a": "red"}, {"a": Color.RED}),
        (dict[Color, int], {"red": 1}, {Color.RED: 1}),
        (Point, {"x": 1}, Point(1.0)),
        (list[Point], [{"x": 1, "y": 2, "tags": ["t"]}], [Point(1.0, 2.0, ["t"])]),
        (Query, {"text": "a"}, {"text": "a"}),
        (Scaled, {"value": 2, "factor": 3}, Scaled(6, 1)),
        (Point | str, "here", "here"),
        (datetime.date, "2026-01-02", datetime.date(2026, 1, 2)),
        (datetime.datetime, "2026-01-02T03:04:05Z", datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)),
        (pathlib.Path, "/tmp", pathlib.Path("/tmp")),
        (UserId, 5, 5),
    ],
)
async def test_arguments_become_python_values(annotation, argument, value):
    received = await value_of(annotation, argument)
    assert received == value
    assert type(received) is type(value)


@pytest.mark.parametrize(
    ("annotation", "argument", "problem"),
    [
        (str, 5, "value must be a string, got 5"),
        (int, "5", 'value must be an integer, got "5"'),
        (int, 5.5, "value must be an integer, got 5.5"),
        (int, True, "value must be an integer, got true"),
        (float, True, "value must be a number, got true"),
        (float, 10**400, "value must be a number, got 1000"),
        (bool, 1, "value must be true or false, got 1"),
        (str, None, "value must be a string, got null"),
        (Literal[1, "a"], True, 'value must be one of 1, "a", got true'),
        (Color, "green", 'value must be one of "red", "blue", got "green"'),
        (int | None, "x", 'value must be an integer or null, got "x"'),
        (list[int], "x", 'value must be an array, got "x"'),
        (list[int], [1, "x"], 'value[1] must be an integer, got "x"'),
        (tuple[int, str], [1], "value must be an array of 2 items, got [1]"),
        (dict[str, int], {"a": "x"}, 'value.a must be an integer, got "x"'),
        (dict[Color, int], {"green": 1}, 'must be one of "red", "blue", got "green"'),
        (Point, {"y": 1}, "value.x is missing"),
        (Point, {"x": 1, "z": 2}, "value.z is unknown; known are: tags, x, y"),
        (Point | None, {"x": "far"}, 'value.x must be a number, got "far"'),
        (Positive, {"value": 0}, "value: value must be positive"),
        (set[Any], [{}], "value: unhashable type: 'dict'"),
        (datetime.date, "tomorrow", 'value must be an ISO 8601 date, got "tomorrow"'),
        (str, 10**100, "..."),
    ],
)
async def test_the_model_is_told_what_is_wrong_with_its_arguments(annotation, argument, problem):
    message = await value_of(annotation, argument)
    assert message.startswith("Error: invalid arguments for function: ")
    assert problem in message


async def test_all_problems_are_told_at_once():
    @tool
    def function(a: int, b: list[Positive], c: str) -> None: ...

    output = await function.invoke('{"a": "x", "b": [{"value": "y"}, {"value": -1}], "d": 1}')
    assert output.content == (
        "Error: invalid arguments for function: d is unknown; known are: a, b, c; "
        'a must be an integer, got "x"; b[0].value must be an integer, got "y"; b[1]: value must be positive; '
        "c is missing"
    )


@pytest.mark.parametrize("arguments", ["{", "nonsense", "[1]", '"a"', "NaN", "[" * 100_000, '{"value": 1' + "0" * 5000])
async def test_arguments_that_are_no_object_are_an_error_and_raise_nothing(arguments):
    @tool
    def function(value: int) -> int:
        return value

    output = await function.invoke(arguments)
    assert output.is_error
    assert "arguments" in output.content


@pytest.mark.parametrize("arguments", ["", "  ", "{}"])
async def test_no_arguments_at_all_suit_a_function_that_needs_none(arguments):
    @tool
    def function(value: int = 3) -> int:
        return value

    assert (await function.invoke(arguments)).content == "3"


async def test_a_default_of_none_takes_null_whatever_the_annotation():
    @tool
    def function(value: int = None) -> str:  # noqa: RUF013
        return repr(value)

    assert (await function.invoke('{"value": null}')).content == "None"


async def test_positional_only_parameters_are_filled_in_order():
    @tool
    def function(a: int, b: int = 2, c: int = 3, /, d: int = 4) -> list[int]:
        return [a, b, c, d]

    assert (await function.invoke('{"a": 1, "c": 30, "d": 40}')).content == "[1, 2, 30, 40]"


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ("text", "text"),
        (Color.RED, '"red"'),
        (None, "null"),
        ({"a": [1, "é"]}, '{"a": [1, "é"]}'),
        (Point(1.0), '{"x": 1.0, "y": 0.0, "tags": []}'),
        ([Point(1.0)], '[{"x": 1.0, "y": 0.0, "tags": []}]'),
        ({3}, "[3]"),
        (datetime.date(2026, 1, 2), '"2026-01-02"'),
        ({(1, 2): 3}, "{(1, 2): 3}"),
    ],
)
async def test_a_result_becomes_text(result, content):
    @tool
    def function() -> object:
        return result

    output = await function.invoke("{}")
    assert (output.content, output.is_error) == (content, False)


@pytest.mark.parametrize(
    ("error", "content"),
    [
        (ValueError("no such city"), "Error: ValueError: no such city"),
        (ToolError("no such city"), "Error: no such city"),
        (StopIteration(), "Error: RuntimeError: coroutine raised StopIteration"),
    ],
)
async def test_what_a_tool_raises_is_told(error, content):
    @tool
    def function() -> None:
        raise error

    output = await function.invoke("{}")
    assert (output.content, output.is_error) == (content, True)


async def test_an_async_function_runs_on_the_loop_and_a_plain_one_elsewhere():
    loop = asyncio.get_running_loop()

    @tool
    async def is_here() -> bool:
        return asyncio.get_running_loop() is loop

    @tool
    def has_loop() -> bool:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return True

    assert (await is_here.invoke("{}")).content == "true"
    assert (await has_loop.invoke("{}")).content == "false"


async def test_callables_of_every_kind_can_be_tools():
    class Adder:
        """Adds."""

        def __call__(self, a: int, b: int) -> int:
            return a + b

        async def method(self, a: int) -> int:
            return a

    class AsyncAdder:
        async def __call__(self, a: int) -> int:
            return a + 1

    def add(a: int, b: int) -> int:
        """Adds up."""
        return a + b

    assert (await Tool(Adder(), name="add").invoke('{"a": 1, "b": 2}')).content == "3"
    assert Tool(Adder(), name="add").description == "Adds."
    assert (await Tool(Adder().method).invoke('{"a": 1}')).content == "1"
    assert (await Tool(AsyncAdder(), name="add").invoke('{"a": 1}')).content == "2"
    partial = Tool(functools.partial(add, b=5), name="add_five")
    assert partial.description == "Adds up."
    assert (await partial.invoke('{"a": 1}')).content == "6"


async def test_a_plain_function_that_returns_an_awaitable_is_awaited():
    async def later() -> str:
        return "later"

    @tool
    def function():
        return later()

    assert (await function.invoke("{}")).content == "later"


async def test_a_plain_function_sees_the_callers_context():
    user = contextvars.ContextVar("user")
    user.set("ada")

    @tool
    def function() -> str:
        return user.get()

    assert (await function.invoke("{}")).content == "ada"


async def test_cancelling_an_invocation_cancels_it_and_a_tools_own_cancellation_is_an_error():
    @tool
    async def sleeps() -> None:
        await asyncio.Event().wait()

    @tool
    async def gives_up() -> None:
        raise asyncio.CancelledError

    task = asyncio.create_task(sleeps.invoke("{}"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await gives_up.invoke("{}")).content == "Error: the tool was cancelled"
