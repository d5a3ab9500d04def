"""One incremental parser for every tool-call dialect: model text in, reasoning, content and tool-call events out.

Standard library only. `StreamParser` reads raw model text, `UpstreamNormalizer` reads OpenAI-style chunks of providers;
both emit the same events, which `collect` adds up to a message.
"""

from stream_parser.detect import dialect_for
from stream_parser.dialects import DIALECTS
from stream_parser.events import collect
from stream_parser.parser import StreamParser
from stream_parser.upstream import UpstreamNormalizer

__all__ = ["DIALECTS", "StreamParser", "UpstreamNormalizer", "collect", "dialect_for"]
