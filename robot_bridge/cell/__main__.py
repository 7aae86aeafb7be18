"""``python -m robot_bridge.cell``: the cell's process, run in the robosuite environment.

Prints one JSON line when ready.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: a 6x6 solve on two threads only costs the other process
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from landbridge import config
from landbridge.errors import LandbridgeError
from robot_bridge.cell.config import ProcessConfig


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m robot_bridge.cell", description=__doc__)
    config.add_arguments(parser, ProcessConfig)
    try:
        settings = config.from_args(ProcessConfig, parser.parse_args())
    except LandbridgeError as error:
        print(f"cell: {error}", file=sys.stderr)
        return 2
    from robot_bridge.cell.process import serve

    serve(settings)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
