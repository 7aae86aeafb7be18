"""Isolated Python environments, one a simulator: their requirements contradict each other and ours.

Each is a virtual environment under ``LANDBRIDGE_HOME/envs/NAME`` with every package pinned
(``landbridge/requirements/NAME.txt``) and this very landbridge on its path. Where packages come from is pip's own
configuration; nothing here names an index.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from landbridge.errors import FailedPrecondition, LandbridgeError, NotFound
from landbridge.process import ProcessGroup

BUILD_TIMEOUT = 3600.0
"""Seconds pip may take for one environment."""

_REQUIREMENTS = Path(__file__).parent / "requirements"
_PACKAGES = ("landbridge", "policy_server", "sim_server", "learner", "robot_bridge")
_STAMP = "landbridge.json"


def home() -> Path:
    """Where landbridge keeps what it builds: ``LANDBRIDGE_HOME``, or a source tree's ``.landbridge``, or the user's.

    The source tree is the one this package lies in, or the one the current folder is part of.
    """
    if named := os.environ.get("LANDBRIDGE_HOME"):
        return Path(named).expanduser().absolute()
    here = Path(__file__).resolve().parent.parent
    for folder in (here, Path.cwd(), *Path.cwd().parents):
        if _is_source_tree(folder):
            return folder / ".landbridge"
    return Path.home() / ".local" / "share" / "landbridge"


def names() -> list[str]:
    """Environments that can be built."""
    return sorted(path.stem for path in _REQUIREMENTS.glob("*.txt"))


def state(name: str) -> str:
    """``ready``, ``outdated`` (built from other requirements), ``incomplete`` or ``absent``."""
    wanted, folder = _fingerprint(name), _folder(name)
    if not folder.exists():
        return "absent"
    built = _read_stamp(folder)
    if built is None:
        return "incomplete"
    return "ready" if built == wanted else "outdated"


def python_for(name: str) -> Path:
    """The interpreter of environment ``name``; FAILED_PRECONDITION says how to build it where it is not there."""
    if name not in names():
        raise NotFound(f"no environment is called {name!r}; there are {', '.join(names())}")
    if (found := state(name)) in ("absent", "incomplete"):
        raise FailedPrecondition(f"environment {name!r} is {found} in {home()}; run: landbridge env install {name}")
    return _folder(name) / "bin" / "python"


def install(name: str, progress: Callable[[str], None] = print) -> Path:
    """Build environment ``name`` and return its interpreter; at once where it is built already.

    What is incomplete or outdated is built anew (pip's cache keeps the downloads). Two calls at a time, also from two
    processes, build it once. A failure carries pip's last lines.
    """
    if name not in names():
        raise NotFound(f"no environment is called {name!r}; there are {', '.join(names())}")
    folder = _folder(name)
    with _locked(folder, progress):
        if state(name) == "ready":
            progress(f"{name}: ready in {folder}")
            return folder / "bin" / "python"
        if folder.exists():
            progress(f"{name}: removing what is {state(name)}")
            shutil.rmtree(folder)
        _build(name, folder, progress)
        (folder / _STAMP).write_text(json.dumps({"fingerprint": _fingerprint(name)}) + "\n", encoding="utf-8")
    progress(f"{name}: ready in {folder}")
    return folder / "bin" / "python"


def _build(name: str, folder: Path, progress: Callable[[str], None]) -> None:
    progress(f"{name}: building in {folder}")
    _run(name, [sys.executable, "-m", "venv", str(folder)], lambda line: None)
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    pins = _pins(name)
    seen: set[str] = set()

    def tell(line: str) -> None:
        word, what, *_ = [*line.split(), "", ""]
        what = what.rpartition("/")[2]  # of "Processing ./folder/file.whl"
        if word in ("Collecting", "Processing") and what not in seen:
            seen.add(what)
            progress(f"{name}: {min(len(seen), len(pins))}/{len(pins)} {what}")
        elif word == "Installing":
            progress(f"{name}: unpacking")

    # torch alone and first: resolved beside others, pip may look at, and fetch, other builds of several GB.
    if torch := [pin for pin in pins if pin.startswith("torch==")]:
        _run(name, [*pip, *torch], tell)
    _run(name, [*pip, "-r", str(_requirements(name))], tell)
    _link_landbridge(folder)
    _run(name, [python, "-c", "import landbridge.rpc"], lambda line: None)


def _run(name: str, command: list[str], tell: Callable[[str], None]) -> None:
    """One step of a build; LandbridgeError with its last lines where it fails."""
    # A PYTHONPATH meant for the caller's interpreter would hide the new environment's own packages.
    variables = {"PIP_NO_INPUT": "1", "PYTHONPATH": "", "PYTHONNOUSERSITE": "1"}
    with ProcessGroup() as group:
        child = group.start(f"pip ({name})", command, env=variables, on_line=tell)
        status = child.wait(BUILD_TIMEOUT)
        if status is None:
            raise LandbridgeError(f"building {name} took longer than {BUILD_TIMEOUT:g} s and was ended{child.tail()}")
        if status != 0:
            raise LandbridgeError(
                f"building {name} failed: {' '.join(command[1:4])} ended with status {status}; run the command again "
                f"when the cause is mended{child.tail()}"
            )


def _link_landbridge(folder: Path) -> None:
    """Put this landbridge and its services, and nothing else of its surroundings, on the environment's path."""
    links = folder / "landbridge-packages"
    links.mkdir(exist_ok=True)
    root = Path(__file__).resolve().parent.parent
    found = [root / package for package in _PACKAGES]
    with contextlib.suppress(metadata.PackageNotFoundError):  # its entry points
        site = Path(str(metadata.distribution("landbridge").locate_file("")))
        found += [*site.glob("landbridge-*.dist-info"), *site.glob("landbridge.egg-info")]
    for source in found:
        if source.is_dir():
            (links / source.name).symlink_to(source.absolute())
    (next((folder / "lib").glob("python3.*")) / "site-packages" / "landbridge.pth").write_text(f"{links}\n")


def _folder(name: str) -> Path:
    return home() / "envs" / name


def _requirements(name: str) -> Path:
    return _REQUIREMENTS / f"{name}.txt"


def _pins(name: str) -> list[str]:
    lines = _requirements(name).read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _fingerprint(name: str) -> str:
    """Hash of what an environment is built from: the pins and the interpreter's version."""
    text = "\n".join([f"python {sys.version_info.major}.{sys.version_info.minor}", *_pins(name)])
    return hashlib.sha256(text.encode()).hexdigest()


def _read_stamp(folder: Path) -> str | None:
    try:
        return str(json.loads((folder / _STAMP).read_text(encoding="utf-8"))["fingerprint"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_source_tree(folder: Path) -> bool:
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(project.get("project", {}).get("name") == "landbridge")


@contextlib.contextmanager
def _locked(folder: Path, progress: Callable[[str], None]) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"{folder.name}: another process is building it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
