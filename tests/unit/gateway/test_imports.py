import subprocess
import sys


def test_the_gateway_starts_without_the_heavy_packages():
    code = "import gateway.cli, sys; print([m for m in ('torch', 'transformers', 'numpy', 'headrace') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
