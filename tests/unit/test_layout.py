"""The house rules: who may import whom, and what never appears in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("policy_server", "sim_server", "learner", "robot_bridge")
PACKAGES = ("landbridge", *SERVICES)
MAX_LINES = 500

FILES = sorted(
    path
    for package in (*PACKAGES, "benchmarks", "tests")
    for path in (ROOT / package).rglob("*.py")
    if "v1" not in path.relative_to(ROOT).parts
)
SHIPPED = [path for path in FILES if path.relative_to(ROOT).parts[0] in PACKAGES]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, module) of every import, wherever it stands, also by ``importlib.import_module("...")``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.lineno, node.module or ""
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
            argument = node.args[0]
            if isinstance(argument, ast.Constant):
                yield node.lineno, str(argument.value)


def broken(path: str, source: str) -> list[str]:
    """What in ``source``, were it at ``path``, breaks the house rules."""
    tree, package = ast.parse(source), path.split("/", 1)[0]
    found = []
    for line, module in imported(tree):
        top = module.partition(".")[0]
        if top in PACKAGES and top not in (package, "landbridge"):
            found.append(f"{path}:{line}: {package} must not import {top}: services meet on the wire")
        if top == "torch" and package == "landbridge" and not path.startswith("landbridge/policies/"):
            found.append(f"{path}:{line}: torch belongs to landbridge/policies")
        if top in ("pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"):
            found.append(f"{path}:{line}: {top} runs what it reads")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("torch.load", "np.load", "numpy.load"):
            keywords = {word.arg: ast.unparse(word.value) for word in node.keywords}
            if ast.unparse(node.func) == "torch.load" and keywords.get("weights_only") != "True":
                found.append(f"{path}:{node.lineno}: torch.load without weights_only=True runs what it reads")
            if keywords.get("allow_pickle", "False") != "False":
                found.append(f"{path}:{node.lineno}: allow_pickle runs what it reads")
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "input":
            found.append(f"{path}:{node.lineno}: nothing reads stdin")
    if source.count("\n") > MAX_LINES:
        found.append(f"{path}: {source.count(chr(10))} lines; cut it where a reader would")
    return found


def test_no_file_breaks_the_rules() -> None:
    assert SHIPPED, "there is something to look at"
    found = [problem for path in SHIPPED for problem in broken(relative(path), path.read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)


def test_tests_and_benchmarks_stay_readable_too() -> None:
    long = [relative(path) for path in FILES if path.read_text(encoding="utf-8").count("\n") > MAX_LINES]
    assert not long


BREACHES = {
    "learner/a.py": [
        "import policy_server",
        "from sim_server.workers import Pool",
        "def f():\n    from robot_bridge import safety",
        "importlib.import_module('policy_server.batcher')",
        "import pickle",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "answer = input('really?')",
        "\n" * (MAX_LINES + 1),
    ],
    "landbridge/rpc.py": ["import learner", "import torch", "def f():\n    import torch.nn"],
}


@pytest.mark.parametrize(("path", "source"), [(path, source) for path in BREACHES for source in BREACHES[path]])
def test_every_rule_catches_its_breach(path: str, source: str) -> None:
    assert len(broken(path, source)) == 1


def test_what_is_allowed_is_allowed() -> None:
    assert not broken("landbridge/policies/flow.py", "import torch\nfrom landbridge.contract import Contract")
    assert not broken("learner/train.py", "from landbridge import rpc\nimport learner.buffer\nimport torch")
    assert not broken("learner/a.py", "torch.load(path, weights_only=True)\nnp.load(path)")


INDEX = re.compile(r"(?i)(--?(extra-)?index-url|--find-links|https?://[^\s'\"]*(pypi|/simple\b|pythonhosted|/whl/))")


def test_no_committed_file_names_a_package_index() -> None:
    texts = [*FILES, ROOT / "pyproject.toml", *(ROOT / "landbridge" / "requirements").glob("*.txt")]
    texts += [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / ".github").rglob("*.yml")]
    named = [relative(path) for path in texts if path != Path(__file__) and INDEX.search(path.read_text("utf-8"))]
    assert not named


@pytest.mark.parametrize("path", sorted((ROOT / "landbridge" / "requirements").glob("*.txt")), ids=lambda p: p.stem)
def test_every_requirement_is_pinned_and_landbridge_is_not_among_them(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    names = [line.partition("==")[0].lower() for line in lines]
    assert lines and all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    assert len(set(names)) == len(names) and "landbridge" not in names
