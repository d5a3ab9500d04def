"""All dialects by name."""

from stream_parser.dialect import Dialect
from stream_parser.dialects.hermes import HERMES

DIALECTS: dict[str, Dialect] = {"hermes": HERMES, "qwen3": HERMES}
DETECTION_ORDER: tuple[Dialect, ...] = (HERMES,)
