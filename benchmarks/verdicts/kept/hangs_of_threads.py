"""Hangs inside of a process: buffers, permits, and event loops."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.verdicts.labels import Label, hang
from benchmarks.verdicts.pieces.recording import Recording, mark


class ReplayBuffer:
    """Holds trajectories of the newest version alone."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._held: list[tuple[int, Any]] = []
        self._lock = threading.Lock()

    def add(self, version: int, ticket: Any) -> None:
        """Add a trajectory."""
        with self._lock:
            self._held.append((version, ticket))

    def sample(self, version: int, size: int) -> list[Any]:
        """Wait until so many trajectories of a version are there; evict older ones."""
        while True:
            with self._lock:
                old = [ticket for held, ticket in self._held if held < version]
                self._held = [one for one in self._held if one[0] >= version]
                if old:
                    self._recording.dropped(old, reason="stale")
                if len(self._held) >= size:
                    batch, self._held = self._held[:size], self._held[size:]
                    return [ticket for _, ticket in batch]
            time.sleep(0.05)


def _generate(recording: Recording, buffer: ReplayBuffer, policy: list[int]) -> None:
    for prompt in range(100_000):
        version = policy[0]
        with recording.trajectory(policy_version=version, prompt_id=prompt) as trajectory:
            time.sleep(0.03)
            trajectory.generated(100)
            trajectory.rewarded(0.5)
        buffer.add(version, trajectory.ticket())


def all_evicted(recording: Recording) -> None:
    """Wait for trajectories of a version that the generator does not get, while all others are evicted."""
    recording.begin(config={"max_policy_age": 0})
    buffer, policy = ReplayBuffer(recording), [0]
    generator = threading.Thread(target=_generate, args=(recording, buffer, policy), name="generator", daemon=True)
    generator.start()
    for number in range(40):
        with recording.step(number):
            with recording.phase("generate"):
                batch = buffer.sample(number, 4)
            with recording.phase("update_actor"):
                time.sleep(0.05)
                recording.trained([ticket for ticket in batch if recording.has_calls], policy_version=number)
            recording.log({"loss": 0.1})
        if number < 8:
            policy[0] = number + 1
        else:
            mark()  # from here on, the new weights come after the next sample


class ToolServerError(RuntimeError):
    """The server of the tools has refused a call."""


async def _generate_and_push(
    recording: Recording, capacity: asyncio.Semaphore, buffer: asyncio.Queue[int], prompt: int
) -> None:
    with recording.trajectory(policy_version=prompt // 4, prompt_id=prompt) as trajectory:
        await asyncio.sleep(0.03)
        trajectory.generated(100)
        if prompt >= 26:
            mark()
            raise ToolServerError("the tool server answered 503")
    await buffer.put(prompt)
    capacity.release()


async def rollout_pump(recording: Recording, capacity: asyncio.Semaphore, buffer: asyncio.Queue[int]) -> None:
    """Start a rollout for each permit."""
    running: set[asyncio.Task[None]] = set()
    for prompt in range(1000):
        await capacity.acquire()
        task = asyncio.create_task(_generate_and_push(recording, capacity, buffer, prompt))
        running.add(task)
        task.add_done_callback(running.discard)


async def _train_with_permits(recording: Recording) -> None:
    capacity, buffer = asyncio.Semaphore(4), asyncio.Queue[int]()
    pump = asyncio.create_task(rollout_pump(recording, capacity, buffer), name="rollout_pump")
    for number in range(40):
        with recording.step(number):
            with recording.phase("generate"):
                for _ in range(4):
                    await buffer.get()
            with recording.phase("update_actor"):
                await asyncio.sleep(0.05)
            recording.log({"loss": 0.1})
    pump.cancel()


def permits_lost(recording: Recording) -> None:
    """Wait for rollouts that cannot begin, since those that failed have not given their permits back."""
    asyncio.run(_train_with_permits(recording.begin()))


def search_web(port: int) -> bytes:
    """Ask the search service, without a time limit, and not as a coroutine."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"capital of France\n")
        return connection.recv(100)


async def _roll_out(recording: Recording, port: int, prompt: int) -> None:
    with recording.trajectory(policy_version=prompt // 4, prompt_id=prompt) as trajectory:
        with trajectory.part("model"):
            await asyncio.sleep(0.03)
        trajectory.generated(100)
        if prompt == 33:
            mark()
            with trajectory.part("tool", name="search"):
                search_web(port)


async def _train_from_coroutines(recording: Recording, port: int) -> None:
    for number in range(20):
        with recording.step(number):
            with recording.phase("generate"):
                await asyncio.gather(*(_roll_out(recording, port, number * 4 + at) for at in range(4)))
            with recording.phase("update_actor"):
                await asyncio.sleep(0.05)
            recording.log({"loss": 0.1})


def loop_blocked_by_a_tool(recording: Recording) -> None:
    """Run a tool that blocks the event loop of all rollouts, and whose service does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as service:
        asyncio.run(_train_from_coroutines(recording.begin(), service.getsockname()[1]))


def receive_weights(sent: threading.Event) -> None:
    """Wait in the engine's only thread until the trainer has sent the weights."""
    sent.wait()


def check_background_threads() -> bool:
    """Return whether the engine is well."""
    return True


def health_check_behind_the_sync(recording: Recording) -> None:
    """Ask an engine whether it is well before sending it the weights that its only thread waits for."""
    recording.begin()
    engine = ThreadPoolExecutor(1, thread_name_prefix="engine")
    for number in range(20):
        with recording.step(number):
            with recording.phase("generate"):
                engine.submit(time.sleep, 0.05).result()
            with recording.phase("update_actor"):
                time.sleep(0.03)
            with recording.phase("weight_sync", version=number + 1):
                sent = threading.Event()
                receiving = engine.submit(receive_weights, sent)
                if number == 8:
                    mark()
                    engine.submit(check_background_threads).result()
                sent.set()
                receiving.result()
            recording.log({"loss": 0.1})


SCENARIOS = (
    hang(
        "all_evicted",
        "meta-pytorch/torchforge#557",
        all_evicted,
        Label(
            right=(r"stale|evict|drop(s|ped)|old(er)? version|version \d", r"\ball\b|every|each|drop|evict|none|only"),
            place=(r"\bsample\b|buffer|generat",),
        ),
    ),
    hang(
        "permits_lost",
        "NVIDIA-NeMo/RL#3219",
        permits_lost,
        Label(
            right=(
                r"ToolServerError|503|rollouts? .*failed|failed",
                r"\bpermits?\b|\bcapacity\b|\bacquire\b|semaphore|\breleas",
            ),
            place=(r"ToolServerError|503|failed|acquire|semaphore|rollout_pump|\bqueue\b|generate",),
        ),
    ),
    hang(
        "loop_blocked_by_a_tool",
        "openJiuwen-ai/agent-core#763",
        loop_blocked_by_a_tool,
        Label(
            right=(r"search_web", r"recv|answer|127\.0\.0\.1|socket|receiv|reads?\b"),
            place=(r"search|event loop|generate",),
        ),
    ),
    hang(
        "health_check_behind_the_sync",
        "allenai/open-instruct#1454",
        health_check_behind_the_sync,
        Label(
            right=(r"engine", r"receive_weights"),
            place=(r"weight_sync|future|health_check_behind_the_sync",),
        ),
    ),
)
