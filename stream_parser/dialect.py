"""What a dialect declares: the types of which every file in `dialects/` is a value.

A declaration is data. The parser compiles it into tables (`grammar.py`), the renderer writes text from it, detection
reads its fingerprints, and docs/dialects.md is printed from it. Headers are templates (`patterns.template`): `{name}`
and the other fields capture, blanks stand for any blanks. Markers are verbatim, but for `{ws}` and `{suffix}`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from stream_parser.patterns import plain

# What a dialect recovers from beyond what all do. All: a call that ends reasoning, a closer repeated or astray beside
# other markup, closers of values and calls missing at the end, aliases of JSON keys, arguments as JSON strings.
Recovery: TypeAlias = Literal[
    "missing_section_open",  # calls also stand outside their section; a bare head only under a declared name
    "missing_call_open",  # a call may begin at its head, under a declared name
    "missing_value_close",  # the next parameter or the end of the call ends a value
    "wrapper_arg",  # one parameter `arguments` or `input` that holds the object is unwrapped
    "echo_after",  # the body repeated after its end is dropped
    "name_from_args",  # a bare counter for a name: the keys tell which tool
]
Typing: TypeAlias = Literal["schema", "python", "attribute"]
Trim: TypeAlias = Literal["none", "newline", "strip"]
Shape: TypeAlias = Literal["one", "array", "lines"]
Region: TypeAlias = Literal["reasoning", "content", "calls", "discard"]
Anchor: TypeAlias = Literal["anywhere", "line", "start"]
IdShape: TypeAlias = Literal["call", "alnum9", "functions_counter", "name_counter"]

USUAL: frozenset[Recovery] = frozenset({"missing_section_open", "missing_value_close"})


@dataclass(frozen=True, slots=True)
class Span:
    """A marked region of text. The first opener and closer are the ones to render."""

    opens: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()
    bare_opens: tuple[str, ...] = ()  # openers only as the very first text of the turn
    ends_reasoning: bool = False  # its opener is known to follow reasoning that was not closed
    after_open: str = ""  # blanks that the templates write there; for rendering only
    before_close: str = ""
    after_close: str = ""


@dataclass(frozen=True, slots=True)
class JsonCall:
    """J: an object that holds name and arguments; or an array or lines of them."""

    shape: Shape = "one"
    name_keys: tuple[str, ...] = ("name",)
    argument_keys: tuple[str, ...] = ("arguments",)  # other usual ones are understood, but called a repair
    id_key: str = "id"
    name_is_key: bool = False  # {"NAME": {…arguments…}}
    ignored_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JsonArguments:
    """H: the name was in the head, the body is the arguments' JSON text; `fence` wraps it in ```json."""

    fence: bool = False


@dataclass(frozen=True, slots=True)
class TaggedArguments:
    """K: key/value tags. `params` are templates up to the value's first character, with `{key}` and maybe `{type}`."""

    params: tuple[str, ...]
    closes: tuple[str, ...]
    trim: Trim = "none"
    typing: Typing = "schema"
    text_types: tuple[str, ...] = ("true", "string", "str")  # values of `{type}` that mean verbatim text
    first_duplicate_wins: bool = False
    cdata: bool = False
    unescape_keys: bool = False
    separator: str = ""  # rendered between parameters


@dataclass(frozen=True, slots=True)
class ElementTree:
    """E: nested tags, each with `prefix` before its `<`; the schema tells arrays from objects."""

    prefix: str


@dataclass(frozen=True, slots=True)
class LaxArguments:
    """L: an object with bare keys whose strings stand between `delimiter`s."""

    delimiter: str


@dataclass(frozen=True, slots=True)
class PythonCalls:
    """P: call expressions with literal arguments, in a list or one a line."""

    brackets: bool = True


@dataclass(frozen=True, slots=True)
class RawArgument:
    """X: the body is one string argument, verbatim."""

    argument: str


@dataclass(frozen=True, slots=True)
class NoArguments:
    """The head is all there is."""


SimpleBody: TypeAlias = (
    JsonCall | JsonArguments | TaggedArguments | ElementTree | LaxArguments | PythonCalls | RawArgument | NoArguments
)


@dataclass(frozen=True, slots=True)
class ByFirstChar:
    """The first character of the body that is no blank decides: `choices` are (characters, body)."""

    choices: tuple[tuple[str, SimpleBody], ...]
    otherwise: SimpleBody


Body: TypeAlias = SimpleBody | ByFirstChar


@dataclass(frozen=True, slots=True)
class Call:
    """`opens` head body `tails` `closes`; every part but the body may be absent, the first of each is rendered.

    `anchor` says where it may begin: anywhere, at the start of the answer or of a line that follows no code fence, or
    at the start of the answer only. A JSON call without opener counts under a declared tool's name only.
    """

    body: Body
    opens: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    tails: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()
    known_name: bool = False  # text unless the head names a declared tool
    anchor: Anchor = "anywhere"
    gap: str = ""  # blanks rendered between opener, head and body
    name: str = ""  # of the tool, where neither head nor body tells it
    own_section: bool = False  # its opener is a section that holds all calls at once


@dataclass(frozen=True, slots=True)
class Route:
    """Messages whose header contains `header` (a regex; `name` captures a tool) go `to` a region or are a call."""

    header: str
    to: Region | Literal["call"]
    render: str = ""  # the header to render, with {name}


@dataclass(frozen=True, slots=True)
class Messages:
    """The frame of routed messages: `starts` header `message` body `ends`."""

    starts: tuple[str, ...]
    message: str
    ends: tuple[str, ...]
    tokens: tuple[str, ...]  # markers that may stand inside a header
    routes: tuple[Route, ...]
    header_chars: str = r"[\w .:/=@-]"
    body: Body | None = None  # of messages routed to "call"
    openings: tuple[str, ...] = ()  # how a header begins whose start the prompt, or nobody, wrote
    known_names: bool = False  # a header that names an undeclared tool is text


@dataclass(frozen=True, slots=True)
class Dialect:
    name: str
    families: tuple[str, ...]
    syntax: str  # one line for people
    calls: tuple[Call, ...] = ()
    reasoning: tuple[Span, ...] = ()
    answer: tuple[Span, ...] = ()  # wrappers around the visible text
    sections: tuple[Span, ...] = ()
    messages: Messages | None = None
    drop: tuple[str, ...] = ()  # end-of-turn markers that engines leave in, or models spell
    noise: tuple[str, ...] = ()  # markers of the frame that mean nothing here
    special: tuple[str, ...] = ()  # markers that are special tokens: never prose, and by id certain
    turns: tuple[str, ...] = ()  # how the prompt opens the assistant's turn
    prompt_opens: str = ""  # if not the first opener of the first reasoning span
    ids: IdShape = "call"
    keep_edges: bool = False  # blanks next to markers are text
    calls_in: tuple[Region, ...] = ("content", "reasoning")
    recovery: frozenset[Recovery] = USUAL
    aliases: tuple[str, ...] = ()
    fingerprints: tuple[tuple[str, ...], ...] = ()  # any of these sets of literals, all in template or vocabulary
    unless: tuple[str, ...] = ()  # literals that speak against it

    @property
    def reasoning_open(self) -> str:
        """The text with which a prompt opens this dialect's reasoning; "" if it has none."""
        if self.prompt_opens:
            return self.prompt_opens
        span = self.reasoning[0] if self.reasoning else None
        return plain(span.opens[0]) + span.after_open if span and span.opens else ""
