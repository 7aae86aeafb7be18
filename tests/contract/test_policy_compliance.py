"""The compliance suite sees what is wrong: each server here breaks one rule, and the right case says so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from policy_parts import HeldUp, observation, serving

from landbridge import rpc
from landbridge.errors import LandbridgeError, from_code
from landbridge.policy import compliance
from landbridge.policy.messages import build_request
from landbridge.tensors import encode
from landbridge.v1 import policy_pb2 as pb
from landbridge.v1 import policy_pb2_grpc
from policy_server.backends.protocol import Answer
from policy_server.batcher import Request
from policy_server.service import PolicyServicer


@contextlib.contextmanager
def mounted(folder: Path, kind: type[PolicyServicer]) -> Iterator[tuple[str, HeldUp]]:
    """A second server on the parts of a good one, with its servicer of another kind."""
    with serving(folder) as (good, backend):
        servicer = kind("broken", backend, good.store, good.batcher, 256, 8)
        descriptor = pb.DESCRIPTOR.services_by_name["PolicyService"]
        service = rpc.Service(policy_pb2_grpc.add_PolicyServiceServicer_to_server, servicer, descriptor)
        server = rpc.Server([service])
        try:
            yield server.start(), backend
        finally:
            server.stop(0)


def failed(address: str) -> set[str]:
    return {verdict.name for verdict in compliance.run(address) if not verdict.passed}


def breaks_backend(change: Any) -> Any:
    """A server whose backend computes something else."""

    def prepare(backend: HeldUp) -> None:
        compute = backend.compute

        def broken(
            module: Any, obs: Mapping[str, np.ndarray], seeds: Sequence[int], deterministic: bool, with_value: bool
        ) -> Answer:
            return change(compute(module, obs, seeds, deterministic, with_value), obs)

        backend.compute = broken  # type: ignore[method-assign]

    return prepare


def with_actions(answer: Answer, actions: np.ndarray) -> Answer:
    return Answer(actions, answer.log_prob, answer.value, answer.trace)


def restless(answer: Answer, obs: Any) -> Answer:
    return with_actions(answer, answer.actions + np.random.default_rng().standard_normal(1).astype(np.float32))


def leaking(answer: Answer, obs: Any) -> Answer:
    return with_actions(answer, answer.actions + obs["state"].mean().astype(np.float32))


BROKEN = {
    "noise of its own": (breaks_backend(restless), "The same observation, seed and version give the same actions"),
    "rows leak": (breaks_backend(leaking), "A row's actions do not depend on what shares its batch"),
    "float64": (
        breaks_backend(lambda a, o: with_actions(a, a.actions.astype(np.float64))),
        "Actions are finite numbers of shape [rows, horizon, action] and the contract's dtype",
    ),
    "short chunk": (
        breaks_backend(lambda a, o: with_actions(a, a.actions[:, :2])),
        "Actions are finite numbers of shape [rows, horizon, action] and the contract's dtype",
    ),
    "no log-probability": (
        breaks_backend(lambda a, o: Answer(a.actions, None, a.value, a.trace)),
        "A stochastic answer has log-probabilities [rows, horizon] float32, a deterministic one has none",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_policy_that_breaks_a_rule_is_found_out(tmp_path: Path, kind: str) -> None:
    prepare, case = BROKEN[kind]
    with mounted(tmp_path, PolicyServicer) as (address, backend):
        prepare(backend)
        assert case in failed(address)


class AcceptsAnything(PolicyServicer):
    """Makes an observation up where the request's is wrong, and serves some version where there is no such."""

    def _submit(self, message: pb.InferRequest, context: Any) -> Request:
        try:
            return super()._submit(message, context)
        except LandbridgeError:
            fine = build_request(message.request_id, observation(1))
            return super()._submit(fine, context)

    def ActivateWeights(self, request: pb.ActivateWeightsRequest, context: Any) -> pb.ActivateWeightsResponse:
        return pb.ActivateWeightsResponse()

    def PushWeights(self, requests: Any, context: Any) -> pb.PushWeightsResponse:
        return pb.PushWeightsResponse()

    def Pause(self, request: pb.PauseRequest, context: Any) -> pb.PauseResponse:
        return pb.PauseResponse()


def test_a_server_that_accepts_anything_is_found_out_in_every_way(tmp_path: Path) -> None:
    with mounted(tmp_path, AcceptsAnything) as (address, _):
        assert failed(address) == {
            "A missing tensor is INVALID_ARGUMENT and named",
            "A wrong dtype is INVALID_ARGUMENT",
            "A wrong shape is INVALID_ARGUMENT: an axis too many, none for the rows",
            "Fewer bytes than the shape asks for are INVALID_ARGUMENT",
            "NaN and infinity in an observation are INVALID_ARGUMENT",
            "No rows, and more than max_rows, are INVALID_ARGUMENT",
            "Another number of seeds than rows is INVALID_ARGUMENT",
            "A request without a mode is INVALID_ARGUMENT",
            "A version that is not held is NOT_FOUND, for Infer and for ActivateWeights, and what is held is listed",
            "A stream goes on after a request that failed",
            "A request whose own timeout has passed is DEADLINE_EXCEEDED, with its ids, and the stream goes on",
            "Weights of another architecture, or without a manifest, are refused and change nothing",
            "A pause without a lease, or of more than 60 s, is INVALID_ARGUMENT",
        }


class Changes(PolicyServicer):
    """Changes what a good server answers."""

    def change(self, response: pb.InferResponse) -> None:
        pass

    def Infer(self, request: pb.InferRequest, context: Any) -> pb.InferResponse:
        response = super().Infer(request, context)
        self.change(response)
        return response

    def InferStream(self, requests: Any, context: Any) -> Iterator[pb.InferResponse]:
        for response in super().InferStream(requests, context):
            self.change(response)
            yield response


class ForgetsEpisode(Changes):
    def change(self, response: pb.InferResponse) -> None:
        response.episode_id = ""


class KeepsSeeds(Changes):
    def change(self, response: pb.InferResponse) -> None:
        response.ClearField("seeds")


class WrongVersion(Changes):
    def change(self, response: pb.InferResponse) -> None:
        response.version = 12345


class AlwaysLogProb(Changes):
    def change(self, response: pb.InferResponse) -> None:
        response.log_prob.CopyFrom(encode(np.zeros((1, 4), np.float32)))


class EndsAtErrors(PolicyServicer):
    def InferStream(self, requests: Any, context: Any) -> Iterator[pb.InferResponse]:
        for response in super().InferStream(requests, context):
            if response.HasField("error"):
                raise from_code(response.error.code, response.error.message)
            yield response


class OutOfOrder(PolicyServicer):
    def InferStream(self, requests: Any, context: Any) -> Iterator[pb.InferResponse]:
        waiting = None
        for response in super().InferStream(requests, context):
            if waiting is not None:
                yield response
            waiting = waiting or response
        if waiting is not None:
            yield waiting


class Confused(PolicyServicer):
    def GetInfo(self, request: pb.GetInfoRequest, context: Any) -> pb.PolicyInfo:
        info = super().GetInfo(request, context)
        info.current_version = 44
        info.reads.append("privileged")
        return info


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        (ForgetsEpisode, "Request, episode and observation ids come back, and the version is one held"),
        (WrongVersion, "Request, episode and observation ids come back, and the version is one held"),
        (KeepsSeeds, "Without seeds the server draws them, one a row, and returns ones that reproduce the answer"),
        (AlwaysLogProb, BROKEN["no log-probability"][1]),
        (EndsAtErrors, "A stream goes on after a request that failed"),
        (OutOfOrder, "When the client half-closes, what it sent is answered and the stream ends well"),
        (Confused, "GetInfo is consistent with itself"),
        (Confused, "What the policy reads is not privileged"),
    ],
)
def test_a_server_that_breaks_a_rule_is_found_out(
    tmp_path: Path, kind: type[PolicyServicer], case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compliance, "TIMEOUT", 1.0)  # some of these servers keep the suite waiting
    with mounted(tmp_path, kind) as (address, _):
        assert case in failed(address)
