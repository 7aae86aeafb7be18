"""Isolated environments: where they lie, in which state, and what happens when a build fails."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from landbridge import environments
from landbridge.errors import FailedPrecondition, LandbridgeError, NotFound


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of its own for every test, and requirements that cost nothing."""
    monkeypatch.setenv("LANDBRIDGE_HOME", str(tmp_path / "home"))
    requirements = tmp_path / "requirements"
    requirements.mkdir()
    (requirements / "tiny.txt").write_text("# nothing to fetch\n")
    monkeypatch.setattr(environments, "_REQUIREMENTS", requirements)
    return tmp_path / "home"


def require(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    environments._requirements("tiny").write_text(text)


def half_built(home: Path) -> Path:
    folder = home / "envs" / "tiny"
    folder.mkdir(parents=True)
    (folder / "left-over").touch()
    return folder


def built(home: Path, monkeypatch: pytest.MonkeyPatch, steps: list[list[str]] | None = None) -> Path:
    """Install with the steps recorded in place of run: what is tested is what surrounds them."""

    def run(name: str, command: list[str], tell: object) -> None:
        (steps if steps is not None else []).append(command)
        (home / "envs" / "tiny" / "lib" / "python3.11" / "site-packages").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(environments, "_run", run)
    return environments.install("tiny", progress=lambda line: None)


def test_what_is_built_is_not_built_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[list[str]] = []
    built(home, monkeypatch, steps)
    assert steps and environments.state("tiny") == "ready"
    again: list[list[str]] = []
    assert (
        built(home, monkeypatch, again) == home / "envs" / "tiny" / "bin" / "python" == environments.python_for("tiny")
    )
    assert not again


def test_what_is_half_built_is_refused_and_built_anew(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = half_built(home)
    assert environments.state("tiny") == "incomplete"
    with pytest.raises(FailedPrecondition, match=r"'tiny' is incomplete in .*; run: landbridge env install tiny"):
        environments.python_for("tiny")
    built(home, monkeypatch)
    assert environments.state("tiny") == "ready" and not (folder / "left-over").exists()


def test_other_requirements_make_it_outdated(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built(home, monkeypatch)
    require(monkeypatch, "# a comment changes nothing\n")
    assert environments.state("tiny") == "ready"
    require(monkeypatch, "six==1.17.0\n")
    assert environments.state("tiny") == "outdated"
    built(home, monkeypatch)
    assert environments.state("tiny") == "ready"


def test_torch_is_resolved_alone_and_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require(monkeypatch, "numpy==1.26.4\ntorch==2.13.0\n")
    steps: list[list[str]] = []
    built(home, monkeypatch, steps)
    installs = [step[step.index("install") :] for step in steps if "install" in step]
    assert [step[-1] for step in installs] == ["torch==2.13.0", str(environments._requirements("tiny"))]
    assert all("--no-input" in step for step in installs)


def test_landbridge_comes_along_and_nothing_else_of_its_surroundings(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(home, monkeypatch)
    folder = home / "envs" / "tiny"
    links = Path((next(folder.rglob("landbridge.pth"))).read_text().strip())
    assert (links / "landbridge" / "environments.py").samefile(environments.__file__)
    assert {path.name.partition("-")[0].partition(".")[0] for path in links.iterdir()} <= set(environments._PACKAGES)


def test_a_failing_step_says_why_with_its_last_lines() -> None:
    step = [sys.executable, "-c", "print('no space left on device'); raise SystemExit(28)"]
    with pytest.raises(LandbridgeError, match=r"building tiny failed: -c .* status 28; .*\n +no space left on device"):
        environments._run("tiny", step, lambda line: None)


def test_a_build_that_fails_half_way_stays_unusable(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(name: str, command: list[str], tell: object) -> None:
        (home / "envs" / "tiny").mkdir(parents=True, exist_ok=True)
        if "pip" in command:
            raise LandbridgeError("pip failed")

    monkeypatch.setattr(environments, "_run", run)
    with pytest.raises(LandbridgeError, match="pip failed"):
        environments.install("tiny", progress=lambda line: None)
    assert environments.state("tiny") == "incomplete"


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    for call in (environments.install, environments.python_for):
        with pytest.raises(NotFound, match="no environment is called 'libero'; there are tiny"):
            call("libero")


def test_home_is_the_variable_or_the_source_tree_or_the_users(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert environments.home() == home
    monkeypatch.delenv("LANDBRIDGE_HOME")
    assert environments.home() == Path(environments.__file__).resolve().parents[1] / ".landbridge"
    monkeypatch.setattr(environments, "__file__", str(tmp_path / "site-packages" / "landbridge" / "environments.py"))
    monkeypatch.chdir(tmp_path)
    assert environments.home() == Path.home() / ".local" / "share" / "landbridge"
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "landbridge"\n')
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    assert environments.home() == tmp_path / ".landbridge"


def test_two_at_a_time_build_it_once(home: Path, tmp_path: Path) -> None:
    code = f"""
import pathlib, time
from landbridge import environments
environments._REQUIREMENTS = pathlib.Path({str(tmp_path / "requirements")!r})
def build(name, folder, progress):
    (folder / "bin").mkdir(parents=True)
    time.sleep(0.3)
    print("built", flush=True)
environments._build = build
environments.install("tiny", progress=lambda line: None)
"""
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert sorted(process.communicate(timeout=30)[0] for process in both) == ["", "built\n"]
    assert all(process.returncode == 0 for process in both)
    shutil.rmtree(home)
