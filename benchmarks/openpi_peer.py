"""A minimal openpi-protocol server: websockets, msgpack with numpy, an answer as large as ours; run as a process."""

from __future__ import annotations

import argparse

import numpy as np
import websockets.sync.server
from openpi_client import msgpack_numpy


def main() -> None:
    """Serve until killed; prints the port."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--horizon", type=int, required=True)
    parser.add_argument("--action", type=int, required=True)
    args = parser.parse_args()
    actions = np.zeros((args.horizon, args.action), np.float32)
    packer = msgpack_numpy.Packer()

    def handle(socket: websockets.sync.server.ServerConnection) -> None:
        socket.send(packer.pack({"name": "minimal"}))
        for message in socket:
            observation = msgpack_numpy.unpackb(message)
            _ = observation["observation/state"][0]
            socket.send(packer.pack({"actions": actions}))

    with websockets.sync.server.serve(handle, "127.0.0.1", 0, compression=None, max_size=None) as server:
        print(server.socket.getsockname()[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
