"""One environment in one process: ``python -m sim_server.worker_process FD PARENT_PID``.

Started by :mod:`sim_server.workers` with one end of a socket pair. Reads requests until the pool closes its end, or is
gone: the kernel ends this process with the thread that started it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import socket
import sys
from typing import Any

from landbridge.contract_codec import contract_to_json
from landbridge.env.protocol import SingleEnv
from landbridge.errors import InvalidArgument, Unavailable
from sim_server import frames
from sim_server.adapters import make_env
from sim_server.link import Link

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process with its parent; the parent may have died before it was asked to."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main(descriptor: int, parent: int) -> None:
    """Make the environment asked for, say hello with its contract, serve."""
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the pool ends us in order
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    link = Link(socket.socket(fileno=descriptor), blocking=True)
    try:
        env = _greet(link)
        if env is not None:
            gc.freeze()  # what importing a simulator made need not be looked at again on every collection
            _serve(link, env)
    except Unavailable:
        pass  # the pool closed its end: the usual way to stop


def _greet(link: Link) -> SingleEnv | None:
    _, sequence, payload = link.receive(None)
    request = json.loads(payload)
    try:
        env = make_env(request["spec"], request["options"])
    except Exception as error:
        link.send(frames.ERROR, sequence, frames.pack_error(error), None)
        return None
    hello = {
        "contract": contract_to_json(env.contract),
        "max_episode_steps": env.max_episode_steps,
        "can_render": bool(getattr(env, "can_render", False)),
        "can_save_state": bool(getattr(env, "can_save_state", True)),
    }
    link.send(frames.OK, sequence, json.dumps(hello).encode(), None)
    return env


def _serve(link: Link, env: SingleEnv) -> None:
    layout = frames.Layout(env.contract)
    try:
        while True:
            kind, sequence, payload = link.receive(None)
            try:
                answer = _answer(env, layout, kind, payload)
            except Exception as error:
                link.send(frames.ERROR, sequence, frames.pack_error(error), None)
            else:
                link.send(frames.OK, sequence, answer, None)
    finally:
        env.close()


def _answer(env: SingleEnv, layout: frames.Layout, kind: bytes, payload: bytes) -> bytes:
    if kind == frames.STEP:
        actions, every_step = layout.unpack_step(payload)
        return layout.pack_result(env.step_chunk(actions, every_step))
    if kind == frames.RESET:
        body: dict[str, Any] = json.loads(payload)
        return layout.pack_observation(env.reset(body["seed"], body["options"]).observation)
    if kind == frames.RENDER:
        return frames.pack_image(env.render())
    if kind == frames.SAVE:
        return env.save_state()
    if kind == frames.RESTORE:
        try:
            return layout.pack_observation(env.restore_state(payload))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidArgument(
                f"state: not one that SaveState of this adapter gave ({type(error).__name__}: {error})", field="state"
            ) from error
    raise ValueError(f"unknown request {kind!r}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
