"""Hot swaps under continuous load: nothing fails, nothing is a mixture, every answer is of the version it names."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from policy_parts import (
    HASH,
    TIMEOUT,
    assert_is_of_its_version,
    computed_here,
    make_policy,
    observation,
    serving,
    state_of,
)

from landbridge.policy.client import InferResult, PolicyClient
from landbridge.weights import changed

SWAPS = 36
CLIENTS = 4

Record = tuple[int, bool, InferResult]


def ask_until(stop: threading.Event, address: str, index: int, records: list[Record]) -> None:
    """Requests of changing size, over a stream or one by one, until told to stop."""
    with PolicyClient(address, TIMEOUT) as client, client.stream() as stream:
        turn = 0
        while not stop.is_set():
            deterministic, rows, turn = turn % 2 == 0, 1 + turn % 5, turn + 1
            ask: Any = client.infer if index % 2 else stream.infer
            obs_seed = index * 100_000 + turn
            records.append((obs_seed, deterministic, ask(observation(rows, obs_seed), deterministic=deterministic)))


def test_hot_swaps_under_load_lose_nothing_and_mix_nothing(tmp_path: Path) -> None:
    stop, records = threading.Event(), [list[Record]() for _ in range(CLIENTS)]
    with serving(tmp_path, keep=4) as (server, _), ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(ask_until, stop, server.address, i, records[i]) for i in range(CLIENTS)]
        try:
            with PolicyClient(server.address, TIMEOUT) as pusher:
                for version in range(1, SWAPS + 1):
                    seen = sum(map(len, records))
                    if version % 3 == 0:
                        pusher.activate(version - 2)
                    state, base = state_of(version), version - 1 if version % 2 else None
                    sent = changed(state, state_of(version - 1)) if base is not None else state
                    reply = pusher.push_weights(sent, version=version, architecture_hash=HASH, base_version=base)
                    assert reply.activated
                    while sum(map(len, records)) < seen + 2 * CLIENTS and not any(c.done() for c in clients):
                        stop.wait(0.001)
        finally:
            stop.set()
        for client in clients:
            client.result(TIMEOUT)  # raises the first request that failed
    answers = [record for own in records for record in own]
    versions = {answer.version for _, _, answer in answers}
    assert len(versions) > SWAPS * 3 // 4, "the load saw nearly every version"
    for obs_seed, deterministic, answer in answers:
        assert_is_of_its_version(answer, observation(len(answer.actions), obs_seed), deterministic)
    assert max(answer.batch_rows for *_, answer in answers) > 5, "clients shared batches"


def test_the_check_above_would_see_one_wrong_row() -> None:
    obs, seeds = observation(5), list(range(5))
    one, other = (computed_here(make_policy(version), obs, seeds) for version in (1, 2))
    assert (np.abs(one - other).max((1, 2)) > 1e-3).all()


def test_a_pinned_campaign_is_untouched_by_swaps(tmp_path: Path) -> None:
    obs = observation(3)
    with serving(tmp_path, keep=2) as (server, _), PolicyClient(server.address, TIMEOUT) as client:
        reference = client.infer(obs, seeds=[1, 2, 3], version=0).actions
        for version in range(1, 12):
            client.push_weights(state_of(version), version=version, architecture_hash=HASH)
            answer = client.infer(obs, seeds=[1, 2, 3], version=0)
            assert answer.version == 0
            np.testing.assert_array_equal(answer.actions, reference)
