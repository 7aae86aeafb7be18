"""Cases about sessions, leases, requests that are wrong, and several clients."""

from __future__ import annotations

import time

import numpy as np

from landbridge import rpc
from landbridge.env.client import EnvClient
from landbridge.env.compliance_probe import Probe, Skipped, refused, same
from landbridge.errors import FailedPrecondition, InvalidArgument, LandbridgeError, NotFound, ResourceExhausted
from landbridge.tensors import encode
from landbridge.v1 import env_pb2 as pb
from landbridge.verdict import NotKept, expect

SHORTEST_LEASE = 5.0


def health(probe: Probe) -> None:
    """health says SERVING"""
    rpc.wait_serving(probe.client.address, 5.0)


def info_is_complete(probe: Probe) -> None:
    """GetInfo is complete"""
    message = probe.call("GetInfo", pb.GetEnvInfoRequest())
    expect(message.kind != pb.EnvInfo.KIND_UNSPECIFIED, "kind: simulator or robot? It decides the rules of safety")
    for name in ("name", "instance_id"):
        expect(getattr(message, name), f"{name} is empty")
    expect(message.num_envs >= 1 and message.max_chunk >= 1, "num_envs and max_chunk must be 1 at least")
    expect(0 <= message.free_envs <= message.num_envs, f"{message.free_envs} of {message.num_envs} are free")


def contract_is_well_formed(probe: Probe) -> None:
    """the contract is well formed"""
    contract = probe.info.contract
    names = [spec.name for spec in contract.observation]
    expect(
        bool(names) and all(names) and len(set(names)) == len(names), f"observation names {names}: one each, none empty"
    )
    for spec in (*contract.observation, contract.action):
        expect(all(extent > 0 or extent == -1 for extent in spec.shape), f"{spec.name}: shape {list(spec.shape)}")
        if -1 not in spec.shape:
            low, high = spec.bounds()
            expect(bool((low <= high).all()), f"{spec.name}: a lower bound lies above the upper one")
        for segment in spec.segments:
            end = segment.start + segment.size
            expect(0 <= segment.start < end <= spec.shape[-1], f"{spec.name}: segment {segment.name} ends at {end}")
    expect(bool(contract.action.shape), "the action has no shape")


def unknown_session(probe: Probe) -> None:
    """an unknown session is NOT_FOUND in every call"""
    nobody, tensor = "no-such-session", encode(probe.actions(1, 1))
    refused(NotFound, lambda: probe.call("Renew", pb.RenewRequest(session_id=nobody)))
    refused(NotFound, lambda: probe.call("Reset", pb.ResetRequest(session_id=nobody, seeds=[0])))
    refused(NotFound, lambda: probe.call("StepChunk", pb.StepChunkRequest(session_id=nobody, actions=tensor)))
    step = pb.StepRequest(session_id=nobody, action=encode(probe.actions(1, 1)[:, 0]))
    refused(NotFound, lambda: probe.call("Step", step))


def closed_session(probe: Probe) -> None:
    """a closed session is NOT_FOUND, closing it again is no error"""
    with probe.open() as session:
        probe.call("Close", pb.CloseRequest(session_id=session.id))
        refused(NotFound, lambda: probe.call("Renew", pb.RenewRequest(session_id=session.id)))
        probe.call("Close", pb.CloseRequest(session_id=session.id))


def too_many_envs(probe: Probe) -> None:
    """more environments than there are cannot be opened"""
    many = probe.info.num_envs + 1
    try:
        probe.client.open(many).close()
    except (InvalidArgument, ResourceExhausted):
        return
    except LandbridgeError as error:
        raise NotKept(f"INVALID_ARGUMENT or RESOURCE_EXHAUSTED expected, {error.code.name} came") from error
    raise NotKept(f"{many} environments were granted, there are {probe.info.num_envs}")


def lease_bounds(probe: Probe) -> None:
    """a lease outside 5 to 600 s is refused"""
    for seconds in (0.5, 3600.0):
        refused(InvalidArgument, lambda s=seconds: probe.client.open(1, lease=s).close(), "lease")  # type: ignore[misc]


def full(probe: Probe) -> None:
    """with all environments taken, Open is RESOURCE_EXHAUSTED with a time to retry"""
    with probe.open(probe.info.num_envs):
        error = refused(ResourceExhausted, lambda: probe.client.open(1).close())
        expect(error.retry_after is not None and error.retry_after > 0, "there is no RetryInfo in the error")
        expect(probe.client.info().free_envs == 0, "free_envs should be 0 meanwhile")
    with probe.open(probe.info.num_envs):
        pass


def vanished_client(probe: Probe) -> None:
    """a vanished client's environments come back when its lease ends; a renewed lease does not end"""
    two = probe.info.num_envs > 1 and probe.info.kind != "robot"
    before = probe.client.info().free_envs
    request = pb.OpenRequest(client_name="vanishing", num_envs=1)
    request.lease.FromSeconds(int(SHORTEST_LEASE))
    gone = probe.call("Open", request).session_id
    kept = probe.call("Open", request).session_id if two else ""
    deadline = time.monotonic() + SHORTEST_LEASE + 5.0
    while probe.client.info().free_envs != before - two and time.monotonic() < deadline:
        if kept:
            probe.call("Renew", pb.RenewRequest(session_id=kept))
        time.sleep(0.5)
    free = probe.client.info().free_envs
    refused(NotFound, lambda: probe.call("Renew", pb.RenewRequest(session_id=gone)))
    if kept:
        probe.call("Renew", pb.RenewRequest(session_id=kept))
        probe.call("Close", pb.CloseRequest(session_id=kept))
    expect(free == before - two, f"{SHORTEST_LEASE + 5:g} s later {free} environments are free, not {before - two}")


def seeds_count(probe: Probe) -> None:
    """Reset wants one seed an environment"""
    with probe.open() as session:
        for seeds in ([], [1, 2]):
            refused(InvalidArgument, lambda s=seeds: session.reset([0], s), "seeds")  # type: ignore[misc]


def wrong_env_ids(probe: Probe) -> None:
    """environment ids out of range or named twice are INVALID_ARGUMENT"""
    with probe.open() as session:
        for ids in ([session.num_envs], [-1], [0, 0]):
            seeds = [0] * len(ids)
            refused(InvalidArgument, lambda i=ids, s=seeds: session.reset(i, s), "env_ids")  # type: ignore[misc]


def step_before_reset(probe: Probe) -> None:
    """a step before the first Reset is FAILED_PRECONDITION, naming the environment"""
    with probe.open() as session:
        refused(FailedPrecondition, lambda: session.step_chunk(probe.actions(1, 1), [0]), "0")


def reset_observation(probe: Probe) -> None:
    """Reset gives what the contract promises, finite, and an episode id"""
    with probe.open() as session:
        first = session.reset([0], [7])
        expect(len(first.episode_ids) == 1 and first.episode_ids[0] != "", "one episode id is expected")
        check_observation(probe, first.observation, 1)


def check_observation(probe: Probe, observation: dict[str, np.ndarray], count: int) -> None:
    """Names, dtypes, shapes and finiteness of [count, …] observations."""
    specs = {spec.name: spec for spec in probe.info.contract.observation}
    expect(set(observation) == set(specs), f"tensors {sorted(observation)} came, the contract has {sorted(specs)}")
    for name, value in observation.items():
        spec, shape = specs[name], value.shape
        expect(value.dtype.name == spec.dtype, f"{name}: {value.dtype.name} came, the contract says {spec.dtype}")
        fits = len(shape) == len(spec.shape) + 1 and shape[0] == count
        fits = fits and all(w in (-1, h) for w, h in zip(spec.shape, shape[1:], strict=True))
        expect(fits, f"{name}: shape {list(shape)} came, {[count, *spec.shape]} expected")
        expect(value.dtype.kind != "f" or np.isfinite(value).all(), f"{name} holds NaN or Inf")


def episode_ids_unique(probe: Probe) -> None:
    """episode ids are unique"""
    ids: list[str] = []
    for _ in range(2):
        with probe.open() as session:
            for seed in (1, 1):
                ids += session.reset([0], [seed]).episode_ids
    expect(len(set(ids)) == len(ids), f"{ids} came")


def two_clients(probe: Probe) -> None:
    """two clients do not disturb each other"""
    if probe.info.num_envs < 2 or probe.info.kind == "robot":
        raise Skipped("the endpoint has one environment")
    actions = probe.actions(1, probe.length())
    with probe.open() as alone:
        first = alone.reset([0], [5]).observation
        wanted = alone.step_chunk(actions, [0]).observation
    with probe.open() as mine, EnvClient(probe.client.address, probe.client.timeout) as other, other.open(1) as theirs:
        same(first, mine.reset([0], [5]).observation, "the first observation beside another client")
        theirs.reset([0], [6])
        theirs.step_chunk(probe.actions(1, probe.length(), seed=1), [0])
        theirs.reset([0], [8])
        same(wanted, mine.step_chunk(actions, [0]).observation, "the same chunk beside another client")


QUIET = (
    health,
    info_is_complete,
    contract_is_well_formed,
    unknown_session,
    closed_session,
    too_many_envs,
    lease_bounds,
    full,
    vanished_client,
    seeds_count,
    wrong_env_ids,
    step_before_reset,
)
"""They move nothing."""
RESETTING = (reset_observation, episode_ids_unique)
"""They reset, which on a robot is a slow motion to its start."""
STEPPING = (two_clients,)
"""They execute actions drawn at random within the contract's bounds."""
