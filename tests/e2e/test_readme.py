"""The README's example is run as it stands there, against a real policy server."""

import re
from pathlib import Path

import numpy as np
import policy_parts as parts

README = Path(__file__).parents[2] / "README.md"


def test_the_example_calls_a_policy_from_a_robot(tmp_path, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    names: dict = {}
    exec(compile(code, "README.md", "exec"), names)
    server = parts.build(parts.PolicyServeConfig(checkpoint=parts.write_checkpoint(tmp_path / "c", 3), port=0))
    server.start()
    commanded = []
    try:
        names["control"](server.address, lambda: {"state": np.zeros(6, np.float32)}, commanded.append, decisions=3)
    finally:
        server.stop(0.2)
    assert "version 3" in capsys.readouterr().out
    assert len(commanded) == 3 * parts.CONFIG.horizon and all(action.shape == (3,) for action in commanded)


def test_every_command_the_readme_names_exists():
    from landbridge.cli.main import groups

    named = set(re.findall(r"^    landbridge ([a-z]+)", README.read_text(), re.M))
    assert named and named <= set(groups())
