"""The parser needs nothing but the standard library."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
from stream_parser import DIALECTS, StreamParser, UpstreamNormalizer, collect, dialect_for
parser = StreamParser("hermes", [])
assert collect(parser.feed("text") + parser.finish("stop")).content == "text"
normalizer = UpstreamNormalizer()
normalizer.finish(done=True)
foreign = {name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
print(sorted(foreign))
"""


def test_the_package_imports_and_runs_without_site_packages():
    command = [sys.executable, "-S", "-W", "error", "-c", PROGRAM, str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.stderr == ""
    assert result.stdout.strip() == "['stream_parser']"
