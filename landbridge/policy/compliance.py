"""Does a policy endpoint keep the protocol? Cases come from the endpoint's own contract.

Run against any server, ours or a stranger's; nothing it serves is changed (the weights pushed are ones it must
refuse). Each case's first docstring line is its name in the report.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from landbridge import rpc
from landbridge.errors import (
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
)
from landbridge.policy.client import PolicyClient
from landbridge.policy.messages import InferResult, build_request, parse_response
from landbridge.policy.samples import sample_observation
from landbridge.tensors import Array, encode
from landbridge.v1 import policy_pb2 as pb
from landbridge.v1 import policy_pb2_grpc, weights_pb2
from landbridge.verdict import Verdict, expect, judge, refused

TIMEOUT = 10.0
"""Seconds the endpoint has for one answer."""

ROUNDING = 1e-4
"""Actions may differ by so much of their scale with the batch's shape."""

SERVICE = "landbridge.v1.PolicyService"


def run(address: str) -> list[Verdict]:
    """A verdict a case."""
    with PolicyClient(address, TIMEOUT) as client, rpc.channel(address) as link:
        suite = Suite(client, policy_pb2_grpc.PolicyServiceStub(link), link)
        return [judge((case.__doc__ or "").splitlines()[0].rstrip("."), case) for case in suite.cases()]


class Suite:
    """The cases. A method whose name begins with ``case_`` is one."""

    def __init__(self, client: PolicyClient, stub: Any, link: Any) -> None:
        self._client, self._stub, self._link = client, stub, link
        self._info = client.info(wait=True)
        self._rng = np.random.default_rng(0)

    def cases(self) -> list[Callable[[], object]]:
        """In the order written."""
        return [getattr(self, name) for name in vars(type(self)) if name.startswith("case_")]

    def _observation(self, rows: int) -> dict[str, Array]:
        return sample_observation(self._info.contract, self._info.reads, rows, self._rng)

    def _infer(self, **changes: Any) -> pb.InferResponse:
        """One valid request of 2 rows, with fields of the message replaced."""
        rows = min(2, self._info.max_rows)
        request = build_request(7, self._observation(rows), seeds=list(range(rows)))
        for name, value in changes.items():
            if name == "observation":
                for key, tensor in value.items():
                    request.observation[key].CopyFrom(tensor)
            else:
                request.ClearField(name)
                request.MergeFrom(pb.InferRequest(**{name: value}))
        reply: pb.InferResponse = rpc.call(self._stub.Infer, request, TIMEOUT)
        return reply

    def _same(self, one: Array, other: Array, what: str) -> None:
        scale = max(1e-6, float(np.abs(one).max()))
        gap = float(np.abs(one.astype(np.float64) - other).max())
        expect(gap <= ROUNDING * scale, f"{what}: the actions differ by {gap:.3g}, of up to {scale:.3g}")

    def case_health(self) -> None:
        """Health is SERVING for the server and for PolicyService."""
        stub = health_pb2_grpc.HealthStub(self._link)
        for service in ("", SERVICE):
            reply = rpc.call(stub.Check, health_pb2.HealthCheckRequest(service=service), TIMEOUT)
            expect(reply.status == health_pb2.HealthCheckResponse.SERVING, f"{service!r} has status {reply.status}")

    def case_reflection(self) -> None:
        """Reflection lists PolicyService."""
        stub = reflection_pb2_grpc.ServerReflectionStub(self._link)
        asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        with rpc.translated():
            replies = list(stub.ServerReflectionInfo(asked, timeout=TIMEOUT))
        names = [service.name for reply in replies for service in reply.list_services_response.service]
        expect(SERVICE in names, f"it lists {names}")

    def case_info(self) -> None:
        """GetInfo is consistent with itself."""
        info = self._info
        known = {spec.name for spec in info.contract.observation}
        expect(info.horizon >= 1, f"horizon {info.horizon}, at least 1 expected")
        expect(info.max_rows >= 1, f"max_rows {info.max_rows}, at least 1 expected")
        expect(bool(info.reads) and set(info.reads) <= known, f"it reads {info.reads}, the contract has {known}")
        expect(info.current_version in info.held_versions, f"{info.current_version} not among {info.held_versions}")
        expect(bool(info.instance_id), "instance_id is empty")

    def case_robot_can_measure(self) -> None:
        """What the policy reads is not privileged."""
        secret = [name for name in self._info.reads if self._info.contract.spec(name).privileged]
        expect(not secret, f"{secret} are known to a simulator only; no robot could use this policy")

    def case_actions(self) -> None:
        """Actions are finite numbers of shape [rows, horizon, action] and the contract's dtype."""
        for rows in sorted({1, min(3, self._info.max_rows)}):
            actions = self._client.infer(self._observation(rows)).actions
            wanted = (rows, self._info.horizon, *self._info.contract.action.shape)
            expect(actions.shape == wanted, f"shape {list(wanted)} expected, {list(actions.shape)} came")
            dtype = self._info.contract.action.dtype
            expect(actions.dtype.name == dtype, f"dtype {dtype} expected, {actions.dtype.name} came")
            expect(bool(np.isfinite(actions).all()), "an action is not finite")

    def case_echo(self) -> None:
        """Request, episode and observation ids come back, and the version is one held."""
        reply = self._infer(episode_id="e", observation_id=12)
        came = (reply.request_id, reply.episode_id, reply.observation_id)
        expect(came == (7, "e", 12), f"(7, 'e', 12) expected, {came} came")
        held = self._client.info().held_versions
        expect(reply.version in held, f"version {reply.version} is not among those held, {held}")

    def case_seed(self) -> None:
        """The same observation, seed and version give the same actions."""
        obs, version = self._observation(1), self._info.current_version
        one, two = (self._client.infer(obs, seeds=[5], version=version).actions for _ in range(2))
        self._same(one, two, "twice the same request")

    def case_drawn_seeds(self) -> None:
        """Without seeds the server draws them, one a row, and returns ones that reproduce the answer."""
        rows = min(2, self._info.max_rows)
        obs = self._observation(rows)
        first = self._client.infer(obs, deterministic=False)
        expect(len(first.seeds) == rows, f"{rows} seeds expected, {len(first.seeds)} came")
        again = self._client.infer(obs, seeds=first.seeds, version=first.version, deterministic=False)
        self._same(first.actions, again.actions, "with the seeds returned")

    def case_batch_mates(self) -> None:
        """A row's actions do not depend on what shares its batch."""
        rows = min(7, self._info.max_rows)
        obs, seeds, version = self._observation(rows), list(range(rows)), self._info.current_version
        together = self._client.infer(obs, seeds=seeds, version=version).actions
        for row in range(rows):
            alone = self._client.infer({n: a[row : row + 1] for n, a in obs.items()}, seeds=[row], version=version)
            self._same(together[row], alone.actions[0], f"row {row} of {rows} and alone")

    def case_stochastic(self) -> None:
        """A stochastic answer has log-probabilities [rows, horizon] float32, a deterministic one has none."""
        rows = min(2, self._info.max_rows)
        obs = self._observation(rows)
        expect(self._client.infer(obs).log_prob is None, "a deterministic answer has log_prob")
        answer = self._client.infer(obs, deterministic=False, want_trace=True)
        expect(answer.log_prob is not None, "log_prob is missing")
        assert answer.log_prob is not None
        came = (answer.log_prob.shape, answer.log_prob.dtype.name)
        expect(came == ((rows, self._info.horizon), "float32"), f"log_prob is {came}")
        expect(bool(np.isfinite(answer.log_prob).all()), "a log-probability is not finite")
        short = [name for name, array in answer.trace.items() if array.shape[:1] != (rows,)]
        expect(not short, f"trace tensors {short} do not have {rows} rows")

    def case_extra_tensor(self) -> None:
        """A tensor the policy does not read is ignored."""
        self._infer(observation={"landbridge-compliance-extra": encode(np.zeros(3, np.float32))})

    def case_missing_tensor(self) -> None:
        """A missing tensor is INVALID_ARGUMENT and named."""
        request = build_request(1, {})
        message = refused(InvalidArgument, rpc.call, self._stub.Infer, request, TIMEOUT)
        expect(any(name in message for name in self._info.reads), f"none of {self._info.reads} is in: {message}")

    def case_wrong_dtype(self) -> None:
        """A wrong dtype is INVALID_ARGUMENT."""
        for name, array in self._observation(1).items():
            wrong = array.astype(np.float64 if array.dtype != np.float64 else np.float32)
            refused(InvalidArgument, self._client.infer, {**self._one(), name: wrong})

    def case_wrong_shape(self) -> None:
        """A wrong shape is INVALID_ARGUMENT: an axis too many, none for the rows."""
        for name, array in self._one().items():
            for wrong in (array[..., None], array[0]):
                refused(InvalidArgument, self._client.infer, {**self._one(), name: wrong})

    def _one(self) -> dict[str, Array]:
        return self._observation(1)

    def _missing(self) -> int:
        return max(self._info.held_versions) + 1_000_003

    def case_short_bytes(self) -> None:
        """Fewer bytes than the shape asks for are INVALID_ARGUMENT."""
        name, array = next(iter(self._one().items()))
        tensor = encode(array)
        tensor.raw = tensor.raw[:-1]
        refused(InvalidArgument, self._infer, observation={name: tensor})

    def case_not_finite(self) -> None:
        """NaN and infinity in an observation are INVALID_ARGUMENT."""
        names = [name for name, array in self._one().items() if array.dtype.kind == "f"]
        for name in names:
            for bad in (np.nan, np.inf):
                obs = self._one()
                obs[name].reshape(-1)[0] = bad
                refused(InvalidArgument, self._client.infer, obs)

    def case_rows(self) -> None:
        """No rows, and more than max_rows, are INVALID_ARGUMENT."""
        for rows in (0, self._info.max_rows + 1):
            refused(InvalidArgument, self._client.infer, self._observation(rows))

    def case_seed_count(self) -> None:
        """Another number of seeds than rows is INVALID_ARGUMENT."""
        refused(InvalidArgument, self._client.infer, self._one(), seeds=[1, 2, 3])

    def case_mode(self) -> None:
        """A request without a mode is INVALID_ARGUMENT."""
        refused(InvalidArgument, self._infer, mode=pb.SAMPLE_MODE_UNSPECIFIED)

    def case_unknown_version(self) -> None:
        """A version that is not held is NOT_FOUND, for Infer and for ActivateWeights, and what is held is listed."""
        missing = self._missing()
        message = refused(NotFound, self._client.infer, self._one(), version=missing)
        expect(str(self._info.current_version) in message, f"what is held is not listed: {message}")
        refused(NotFound, self._client.activate, missing)

    def case_stream_order(self) -> None:
        """Answers on a stream come in the order of the requests."""
        with self._client.stream() as stream:
            for index in range(8):
                stream.send(self._one(), observation_id=index)
            came = [stream.receive().observation_id for _ in range(8)]
        expect(came == list(range(8)), f"they came in the order {came}")

    def case_stream_goes_on(self) -> None:
        """A stream goes on after a request that failed."""
        with self._client.stream() as stream:
            refused(InvalidArgument, stream.infer, {})
            refused(NotFound, stream.infer, self._one(), version=self._missing())
            stream.infer(self._one())

    def case_deadline(self) -> None:
        """A request whose own timeout has passed is DEADLINE_EXCEEDED, with its ids, and the stream goes on."""
        late = build_request(1, self._one(), timeout=0.0, episode_id="e", observation_id=3)
        fine = build_request(2, self._one(), timeout=TIMEOUT)
        with rpc.translated():
            replies = list(self._stub.InferStream(iter([late, fine]), timeout=TIMEOUT))
        expect(len(replies) == 2, f"2 answers expected, {len(replies)} came")
        came = (replies[0].request_id, replies[0].episode_id, replies[0].observation_id)
        expect(came == (1, "e", 3), f"ids (1, 'e', 3) expected in the error, {came} came")
        refused(DeadlineExceeded, parse_response, late, replies[0])
        parse_response(fine, replies[1])

    def case_half_close(self) -> None:
        """When the client half-closes, what it sent is answered and the stream ends well."""
        requests = [build_request(index, self._one(), timeout=TIMEOUT) for index in (1, 2, 3)]
        with rpc.translated():
            replies = list(self._stub.InferStream(iter(requests), timeout=TIMEOUT))
        expect([r.request_id for r in replies] == [1, 2, 3], f"answers to {[r.request_id for r in replies]} came")

    def case_bad_push(self) -> None:
        """Weights of another architecture, or without a manifest, are refused and change nothing."""
        before = self._client.list_weights()
        manifest = weights_pb2.WeightsManifest(version=self._missing(), architecture_hash="0" * 64, activate=True)
        refused(FailedPrecondition, self._push, pb.PushWeightsRequest(manifest=manifest))
        bucket = pb.PushWeightsRequest(bucket=weights_pb2.WeightsBucket(name="x", data=b"1234"))
        refused((InvalidArgument, DataLoss), self._push, bucket)
        after = self._client.list_weights()
        expect([v.version for v in before.versions] == [v.version for v in after.versions], "another version is held")
        expect(before.current_version == after.current_version, f"version {after.current_version} is now current")

    def _push(self, *parts: pb.PushWeightsRequest) -> None:
        rpc.call(self._stub.PushWeights, iter(parts), TIMEOUT)

    def case_pause_lease(self) -> None:
        """A pause without a lease, or of more than 60 s, is INVALID_ARGUMENT."""
        for lease in (0.0, 61.0):
            refused(InvalidArgument, self._client.pause, lease)

    def case_reset_session(self) -> None:
        """A session can be reset, also one the server has not heard of."""
        self._client.infer(self._one(), session_id="landbridge-compliance", observation_id=5)
        self._client.reset_session("landbridge-compliance")
        self._client.reset_session("landbridge-compliance-unknown")
        answer: InferResult = self._client.infer(self._one(), session_id="landbridge-compliance", observation_id=1)
        expect(answer.observation_id == 1, f"observation 1 expected after the reset, {answer.observation_id} came")
