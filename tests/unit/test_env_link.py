"""What travels between the pool and its workers arrives as it was sent."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

from landbridge.contract import Contract, TensorSpec
from landbridge.env.protocol import ChunkResult
from landbridge.errors import DeadlineExceeded, Internal, InvalidArgument, Unavailable, Unimplemented
from sim_server import frames, link

CONTRACT = Contract(
    (
        TensorSpec("image", (4, 5, 3), "uint8"),
        TensorSpec("state", (6,)),
        TensorSpec("clock", (), "float64"),
        TensorSpec("half", (2, 2), "bfloat16"),
        TensorSpec("pose", (3, 4)),
    ),
    TensorSpec("action", (2, 3), "float64"),
    20.0,
)
LAYOUT = frames.Layout(CONTRACT)


def observation() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "image": rng.integers(0, 256, (4, 5, 3), np.uint8),
        "state": rng.normal(size=6).astype(np.float32),
        "clock": np.array(1.25),
        "half": rng.normal(size=(2, 2)).astype(ml_dtypes.bfloat16),
        "pose": rng.normal(size=(3, 4)).astype(np.float32)[:, ::-1],
    }


def result(message: str = "") -> ChunkResult:
    return ChunkResult(
        observation=observation(),
        rewards=np.array([0.5, 3e38, 0.0], np.float32),
        evaluated=np.array([True, True, False]),
        executed=2,
        terminated=True,
        success=np.array([True, False, False]),
        success_once=True,
        episode_step=17,
        message=message,
    )


@pytest.mark.parametrize("message", ["", "x", "why: größer als erlaubt"])
def test_results_round_trip(message: str) -> None:
    sent = result(message)
    got, finite = LAYOUT.unpack_result(LAYOUT.pack_result(sent))
    assert finite
    for name, value in sent.observation.items():
        assert got.observation[name].dtype == value.dtype
        assert np.array_equal(got.observation[name], value)
    for name in ("rewards", "evaluated", "success"):
        assert np.array_equal(getattr(got, name), getattr(sent, name))
    plain = ("executed", "terminated", "truncated", "abandoned", "success_once", "success_at_end", "episode_step")
    assert [getattr(got, name) for name in (*plain, "message")] == [getattr(sent, n) for n in (*plain, "message")]


@pytest.mark.parametrize("where", ["state", "clock", "half", "pose", "rewards"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_found_wherever_it_is(where: str, value: float) -> None:
    sent = result()
    target = sent.rewards if where == "rewards" else sent.observation[where]
    target[(-1,) * target.ndim] = value
    assert not LAYOUT.unpack_result(LAYOUT.pack_result(sent))[1]
    if where != "rewards":
        assert not LAYOUT.unpack_observation(LAYOUT.pack_observation(sent.observation))[1]


def test_an_observation_of_another_shape_than_promised_is_an_error_not_a_reshape() -> None:
    wrong = observation() | {"pose": np.zeros((4, 3), np.float32)}
    with pytest.raises(Internal, match=r"pose.*\[3, 4\].*\[4, 3\]"):
        LAYOUT.pack_observation(wrong)


def test_actions_and_images_round_trip() -> None:
    actions = np.random.default_rng(0).normal(size=(5, 2, 3))
    got, every_step = LAYOUT.unpack_step(LAYOUT.pack_step(actions, True))
    assert every_step and np.array_equal(got, actions)
    image = observation()["image"]
    assert np.array_equal(frames.unpack_image(frames.pack_image(image)), image)


def test_errors_keep_their_class_and_field() -> None:
    got = frames.unpack_error(frames.pack_error(InvalidArgument("no such option", field="options")))
    assert isinstance(got, InvalidArgument) and (str(got), got.field) == ("no such option", "options")
    assert isinstance(frames.unpack_error(frames.pack_error(NotImplementedError())), Unimplemented)
    assert "ZeroDivisionError" in str(frames.unpack_error(frames.pack_error(ZeroDivisionError("x"))))
    json.loads(frames.pack_error(ValueError("x")))


@pytest.fixture
def ends() -> Iterator[tuple[link.Link, link.Link, socket.socket]]:
    ours, theirs = link.pair()
    yield link.Link(ours), link.Link(theirs), theirs
    ours.close()
    theirs.close()


def soon() -> float:
    return time.monotonic() + 5.0


@pytest.mark.parametrize("size", [0, 1, (1 << 16) - 9, 1 << 16, 5_000_000])
def test_messages_of_any_size_arrive(ends: tuple[link.Link, link.Link, socket.socket], size: int) -> None:
    ours, theirs, _ = ends
    payload = np.random.default_rng(0).bytes(size)
    thread = threading.Thread(target=ours.send, args=(b"S", 41, payload, soon()))
    thread.start()
    assert theirs.receive(soon()) == (b"S", 41, payload)
    thread.join()


def test_a_message_in_pieces_is_put_together(ends: tuple[link.Link, link.Link, socket.socket]) -> None:
    ours, _, raw = ends
    message = b"\x03\x00\x00\x00\x07\x00\x00\x00Kabc"

    def dribble() -> None:
        for byte in message:
            raw.send(bytes([byte]))
            time.sleep(0.001)

    thread = threading.Thread(target=dribble)
    thread.start()
    assert ours.receive(soon()) == (b"K", 7, b"abc")
    thread.join()


def test_waiting_ends_with_the_deadline_or_with_the_peer(ends: tuple[link.Link, link.Link, socket.socket]) -> None:
    ours, theirs, _ = ends
    with pytest.raises(DeadlineExceeded):
        ours.receive(time.monotonic() + 0.02)
    with pytest.raises(DeadlineExceeded):
        ours.send(b"S", 1, bytes(50_000_000), time.monotonic() + 0.02)
    theirs.close()
    with pytest.raises(Unavailable):
        ours.receive(soon())
    with pytest.raises(Unavailable):
        ours.send(b"S", 1, b"", soon())
