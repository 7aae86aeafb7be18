"""Generate ``landbridge/v1`` from ``protos/``; with ``--check``, fail when the committed stubs are stale.

Run from the repository's root: ``python -m landbridge.protoc [--check]``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("landbridge/v1")


def generate(out: Path) -> None:
    """Write every stub and its type stub below ``out``."""
    import grpc_tools
    from grpc_tools import protoc

    includes = [f"-I{ROOT / 'protos'}", f"-I{Path(grpc_tools.__file__).parent / '_proto'}"]
    outputs = [f"--python_out={out}", f"--pyi_out={out}", f"--grpc_python_out={out}"]
    sources = sorted(str(p) for p in (ROOT / "protos" / PACKAGE).glob("*.proto"))
    code = protoc.main(["protoc", *includes, *outputs, *sources])
    if code != 0:
        raise SystemExit(f"protoc failed with exit status {code}")
    for stub in (out / PACKAGE).glob("*_pb2_grpc.py"):
        if "Stub" not in stub.read_text():
            stub.unlink()  # messages only: the file would be empty


def stale(fresh: Path) -> list[str]:
    """Names of committed stubs that differ from freshly generated ones, are missing, or are left over."""
    names = {p.name for where in (fresh / PACKAGE, ROOT / PACKAGE) for p in where.glob("*_pb2*.py*")}

    def text(path: Path) -> str | None:
        return path.read_text() if path.exists() else None

    return sorted(n for n in names if text(fresh / PACKAGE / n) != text(ROOT / PACKAGE / n))


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 when stale")
    args = parser.parse_args()
    if not args.check:
        generate(ROOT)
        return 0
    with tempfile.TemporaryDirectory() as tmp:
        generate(Path(tmp))
        names = stale(Path(tmp))
    if names:
        print(f"stale stubs: {', '.join(names)}; run `make protos` and commit", file=sys.stderr)
    return 1 if names else 0


if __name__ == "__main__":
    raise SystemExit(main())
