import subprocess
import sys


def test_the_gateway_starts_without_the_heavy_packages():
    heavy = ("torch", "transformers", "numpy", "headrace")
    code = f"import gateway.cli, gateway.serve_command, sys; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
