"""Inference messages from numpy and back, as clients see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

import numpy as np

from landbridge.durations import to_duration, to_seconds
from landbridge.errors import Internal, from_code
from landbridge.tensors import decode, decode_map, encode_map
from landbridge.v1 import policy_pb2 as pb


class InferOptions(TypedDict, total=False):
    """What a request may say beside its observation."""

    deterministic: bool
    """Default True: evaluation and robots. False: exploration, with log-probabilities."""
    seeds: Sequence[int]
    """One a row, 64-bit unsigned: make the answer reproducible. Default: the server draws and returns them."""
    version: int | None
    """Exactly these weights; NOT_FOUND lists what is held."""
    want_trace: bool
    want_value: bool
    session_id: str
    """Of one session's requests only the newest is answered; the others are ABORTED."""
    episode_id: str
    observation_id: int
    """Both are echoed."""


@dataclass(frozen=True)
class InferResult:
    """One answer. ``version`` is the weights' that computed every row of it. Arrays are read-only."""

    actions: np.ndarray
    """[rows, horizon, …action], physical units."""
    version: int
    seeds: tuple[int, ...]
    log_prob: np.ndarray | None
    """[rows, horizon] float32; None when deterministic."""
    value: np.ndarray | None
    """[rows] float32; None unless asked for."""
    trace: dict[str, np.ndarray]
    """{name: [rows, …]}; empty unless asked for."""
    episode_id: str
    observation_id: int
    queued: float
    """Seconds in the queue …"""
    computed: float
    """… and in the batch's computation."""
    batch_rows: int


def build_request(
    request_id: int,
    observation: Mapping[str, np.ndarray],
    *,
    timeout: float | None = None,
    **options: Unpack[InferOptions],
) -> pb.InferRequest:
    """A request for {name: [rows, …]}; ``timeout`` in seconds is the request's own, for streams."""
    deterministic = options.get("deterministic", True)
    return pb.InferRequest(
        request_id=request_id,
        session_id=options.get("session_id", ""),
        episode_id=options.get("episode_id", ""),
        observation_id=options.get("observation_id", 0),
        observation=encode_map(observation),
        seeds=options.get("seeds", ()),
        mode=pb.SAMPLE_MODE_DETERMINISTIC if deterministic else pb.SAMPLE_MODE_STOCHASTIC,
        version=options.get("version"),
        want_trace=options.get("want_trace", False),
        want_value=options.get("want_value", False),
        timeout=None if timeout is None else to_duration(timeout),
    )


def parse_response(request: pb.InferRequest, response: pb.InferResponse) -> InferResult:
    """The answer decoded; an answer to another request, or an error inside it, is raised."""
    if response.request_id != request.request_id:
        raise Internal(f"the answer to request {response.request_id} came for request {request.request_id}; dropped")
    if response.HasField("error"):
        retry = to_seconds(response.error.retry_after) if response.error.HasField("retry_after") else None
        raise from_code(response.error.code, response.error.message, retry)
    return InferResult(
        actions=decode(response.actions, "actions"),
        version=response.version,
        seeds=tuple(response.seeds),
        log_prob=decode(response.log_prob, "log_prob") if response.HasField("log_prob") else None,
        value=decode(response.value, "value") if response.HasField("value") else None,
        trace=decode_map(response.trace, "trace"),
        episode_id=response.episode_id,
        observation_id=response.observation_id,
        queued=response.timings.queued,
        computed=response.timings.computed,
        batch_rows=response.timings.batch_rows,
    )
