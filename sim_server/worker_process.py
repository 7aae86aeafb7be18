"""One environment in one process: reads requests from a pipe until it closes."""

from __future__ import annotations

import json
import os
import signal
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from landbridge.contract_codec import contract_to_json
from landbridge.env.protocol import SingleEnv
from landbridge.process import watch_parent
from sim_server import frames


def main(pipe: Connection, spec: str, options: dict[str, Any]) -> None:
    """Make ``spec`` (``maniskill:PickCube-v1``), say hello with its contract, serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the server ends us in order
    os.environ["OMP_NUM_THREADS"] = "1"
    watch_parent(lambda: os._exit(1))
    try:
        from sim_server.adapters import make_env

        env = make_env(spec, options)
    except Exception as error:
        pipe.send_bytes(frames.pack_error(error))
        return
    hello = {
        "contract": contract_to_json(env.contract),
        "max_episode_steps": env.max_episode_steps,
        "pid": os.getpid(),
    }
    pipe.send_bytes(frames.OK + json.dumps(hello).encode())
    layout = frames.Layout(env.contract)
    try:
        while True:
            request = pipe.recv_bytes()
            try:
                answer = _answer(env, layout, request[:1], request[1:])
            except Exception as error:
                answer = frames.pack_error(error)
            pipe.send_bytes(answer)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the server closed the pipe, or died
    finally:
        env.close()


def _answer(env: SingleEnv, layout: frames.Layout, kind: bytes, payload: bytes) -> bytes:
    if kind == frames.STEP:
        actions, every_step = layout.unpack_step(payload)
        return layout.pack_result(env.step_chunk(actions, every_step))
    if kind == frames.RESET:
        body = json.loads(payload)
        return frames.OK + layout.pack_observation(env.reset(body["seed"], body["options"]).observation)
    if kind == frames.RENDER:
        image = np.ascontiguousarray(env.render(), np.uint8)
        return frames.OK + json.dumps(image.shape).encode() + b"\n" + image.tobytes()
    if kind == frames.SAVE:
        return frames.OK + env.save_state()
    if kind == frames.RESTORE:
        return frames.OK + layout.pack_observation(env.restore_state(payload))
    raise ValueError(f"unknown request {kind!r}")
