"""The settings of a run: their names, types, bounds and defaults.

`otel_rl.setup.loading` reads them from the keywords of `init`, the environment and a file.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

INSTRUMENT_VARIABLE, CAPTURE_VARIABLE = "OTEL_RL_INSTRUMENT", "OTEL_RL_CAPTURE"
"""Frameworks that a process instruments, and trackers that it captures, from its start."""

_NAME = Meta(
    pattern=r"\A([A-Za-z0-9_.-]*[A-Za-z0-9_][A-Za-z0-9_.-]*)?\Z",
    max_length=128,
    description="at most 128 letters, digits, '-', '_' and '.', since it names directories",
)
_URL = Meta(pattern=r"\Ahttps?://[^/\s@]+(/\S*)?\Z", description="a URL such as http://node1:8000/metrics")

FileName = Annotated[str, _NAME]
Url = Annotated[str, _URL]
Count = Annotated[int, Meta(ge=0)]
PositiveInt = Annotated[int, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0, le=1e30)]
Seconds = Annotated[float, Meta(gt=0, le=1e9)]  # in nanoseconds it fits into 64 bits
Ratio = Annotated[float, Meta(ge=0, le=1)]
Quantiles = Annotated[tuple[Ratio, ...], Meta(description="a list such as [0.5, 0.95], each between 0 and 1")]
Urls = Annotated[tuple[Url, ...], Meta(description="a list of URLs such as ['http://node1:8000/metrics']")]
Metrics = Annotated[
    str | tuple[str, ...],
    Meta(description="'usual', 'full', a list of patterns such as ['loss', 'time/*'], or a function of the values"),
]
Patterns = Annotated[
    tuple[str, ...], Meta(description=r"a list of regular expressions such as ['ACME-\d{6}'], none of an empty text")
]
Names = Annotated[tuple[str, ...], Meta(description="a list of names such as ['*_badge']")]
Reducers = Annotated[
    dict[str, str | tuple[str, ...]],
    Meta(description="a mapping such as {'tokens': 'sum', 'reward': ['mean', 'p95']}"),
]


class ExporterSpec(msgspec.Struct, frozen=True):
    """An exporter as the user asked for it."""

    name: str  # a registered name, or `module:qualname` of a factory
    options: dict[str, Any] = {}  # keyword arguments of the factory, in addition to the run
    factory: Any = None  # if only this process can call it; the exporter then runs in a thread here


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that trackers receive: how often, what is in them, and how long they wait for ranks.

    Attributes:
        every: Trackers receive one row every so many steps; 0 for never.
        first: If true, step 0 has a row of its own. If false, it belongs to the row of step `every`, like the steps in
            between.
        window: "mean" reduces a row over the steps since the last one; "last" sends the values of its own step.
        quantiles: Quantiles of observations that rows have in addition to mean, max, min, std, sum and count.
        metrics: Metrics that trackers receive: "usual", which leaves memory around phases to the archive and to
            instruments, except for ROLL; "full"; name patterns (`!` excludes a pattern), or a function that takes and
            returns the values by name, or its `module:qualname`.
        limit: Maximum number of metric names that trackers receive; more are counted.
        deadline: Seconds after which a step is closed even if ranks are missing.
        anomalies: If true, the agent looks in rows for signs that the training is ill, and makes events of them.
    """

    every: Count = 1
    first: bool = True
    window: Literal["mean", "last"] = "mean"
    quantiles: Quantiles = ()
    metrics: Metrics = "usual"
    limit: PositiveInt = 10_000
    deadline: Seconds = 10.0
    anomalies: bool = True

    def is_due(self, step: int) -> bool:
        """Return whether this step has a row."""
        if self.every <= 0:
            return False
        return self.first if step == 0 else step % self.every == 0

    def window_of(self, step: int) -> int:
        """Return the number of the window of a step; a window ends at the next step that has a row."""
        if step == 0 and self.first:
            return 0
        return max(1, -(-step // self.every))

    @property
    def has_all_steps(self) -> bool:
        """If true, every step has a row."""
        return self.every == 1 and self.first


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """Trace sampling: the steps and spans that are exported.

    Attributes:
        ratio: Share of the traces that are exported. Slow and failed steps, and steps with an evaluation or a
            checkpoint, are always exported. The archive gets every span.
        budget: Number of spans per minute that are exported of traces outside of steps, such as trajectories. If there
            are more, a smaller share of these traces is exported. Failed ones have a second budget of this size.
    """

    ratio: Ratio = 1.0
    budget: Count = 2000


class Flops(msgspec.Struct, frozen=True, kw_only=True):
    """The model and the device, for FLOP/s and the model FLOPs utilization.

    Attributes:
        parameters: Trainable parameters of the model.
        per_token: FLOPs for training on one token; 0 for 6 per parameter.
        peak: Peak FLOP/s of one device.
    """

    parameters: NonNegative = 0.0
    per_token: NonNegative = 0.0
    peak: NonNegative = 0.0


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """The hardware poller of the agent, and the inference servers.

    Attributes:
        enabled: If true, GPUs, host, processes and cgroup are measured. `hardware=False` sets only this.
        interval: Seconds between two measurements; at least 1 for GPUs.
        flush_interval: Seconds between two exports of measurements to trackers.
        pcie: If true, PCIe throughput is measured too, which takes the driver 20 ms each time.
        engines: URLs of the metrics endpoints of inference servers, such as `http://node1:8000/metrics`. Rows
            have their load, and a Prometheus that finds this run also finds them.
    """

    enabled: bool = True
    interval: Seconds = 10.0
    flush_interval: Seconds = 10.0
    pcie: bool = False
    engines: Urls = ()


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements on the device of the trainer: its clock and its allocator.

    Attributes:
        device_clock: If true, phases are also timed by the device's clock.
        peaks: "shared" leaves the allocator's peaks alone; "reset" resets them at the start of each phase, so that its
            peak is exact.
        history: Number of allocator events kept for a report of running out of memory; each takes some kilobytes of
            host memory.
    """

    device_clock: bool = True
    peaks: Literal["shared", "reset"] = "shared"
    history: Count = 0


class Redact(msgspec.Struct, frozen=True, kw_only=True):
    """Secrets of your own, which are redacted like those that otel-rl knows.

    Attributes:
        patterns: Regular expressions of secrets in texts. The variable has one, or a list in JSON.
        names: Names of parameters, attributes and columns whose values are secrets; `*` stands for any characters.
        function: `module:qualname` of a function that gets each text and the name of its value in the trainer's
            process, and returns the text that is recorded.
    """

    patterns: Patterns = ()
    names: Names = ()
    function: str = ""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that the agent reads too.

    Attributes:
        reduce: Reducers by name pattern: one or several of mean, max, min, sum, last, std, count, geomean, and
            quantiles such as p95.
        head: `host:port` of the agent that makes the rows of all machines, on the machine that owns the address; empty
            for one machine. An address that other machines reach needs a token (`otel-rl token`) and the prefix
            `https://`. The head also receives spans of inference servers.
        insecure: If true, addresses that other machines reach may be used without TLS. They need a token all the same.
        share: Other users who may read the files of the run: "none", the "group" of the directory, or "all".
        strict: If true, `init` raises `SettingsError` where it would otherwise warn and record in another way: a
            directory that cannot be written, a port in use, a run that another process records.
        stalled_after: Seconds after which a process counts as stalled if it stays in a phase, or outside of any inside
            or behind a step. 0 learns the time of each phase: five times its longest time, and at least one minute;
            30 minutes for a phase that did not end before.
        autopsy: If true, an autopsy is made when a process is stalled or dies, at most eight times.
    """

    reduce: Reducers = {}
    head: str = ""
    insecure: bool = False
    share: Literal["none", "group", "all"] = "none"
    strict: bool = False
    stalled_after: NonNegative = 0.0
    autopsy: bool = True
    rows: Rows = Rows()
    traces: Traces = Traces()
    flops: Flops = Flops()
    hardware: Hardware = Hardware()
    redact: Redact = Redact()


class Settings(AgentSettings, frozen=True, kw_only=True):
    """All settings of a process, complete and checked.

    Attributes:
        project: Name by which trackers group runs; by default the script's.
        name: Display name of the run; by default its id.
        id: Identity of the run. A second start with the same id is another attempt of the run.
        dir: Directory of the run directories.
        exporters: Exporters by name, with options in a mapping, or classes and functions that build one.
        rank: Number of this process among the trainer processes of the run, from 0.
        world_size: Number of trainer processes of the run.
        role: Role of this process, if it is not a trainer rank: driver, rollout, reward.
        dialect: Framework whose metric names are expected; "auto" detects it.
        content: If true, texts such as prompts and completions may leave the process.
        agent: "auto" starts the agent of this machine; "off" only records.
        set_global: If true, this run's tracer provider becomes OpenTelemetry's global one.
        quiet: If true, `init` and `finish` print nothing.
        local_dir: Directory for journals if `dir` is shared by machines. Each machine needs its own, and it must
            outlive the job. If empty, `/var/tmp`, or the temporary directory if `/var/tmp` cannot be used.
        local_world_size: Number of trainer processes on this machine, for which first rows wait; by default the
            launcher's, or without `head` all. 0 if unknown.
        idle_timeout: Seconds without a living trainer or progress after which the agent ends.
        journal_limit: Maximum size in bytes of the undelivered journal of each process, and of the outbox.
        archive_limit: Size in bytes of the archive above which old messages and spans are thinned; 0 for no archive.
        on_event: A command, or the URL of a webhook, that gets each event of otel-rl as JSON. The command gets it on
            standard input; it is split into words as in a shell, and no shell runs it.
    """

    project: str = ""
    name: str = ""
    id: FileName = ""
    dir: str = "runs"
    exporters: tuple[ExporterSpec, ...] = (ExporterSpec("jsonl"),)
    rank: Count = 0
    world_size: PositiveInt = 1
    role: FileName = ""
    dialect: str = "auto"
    content: bool = False
    agent: Literal["auto", "off"] = "auto"
    set_global: bool = False
    quiet: bool = False
    memory: Memory = Memory()
    local_dir: str = ""
    local_world_size: Count = 0
    idle_timeout: Seconds = 60.0
    journal_limit: PositiveInt = 1 << 30
    archive_limit: Count = 4 << 30
    on_event: str = ""


class JobSettings(Settings, frozen=True, kw_only=True):
    """Settings whose `id` is the launcher's identity of a job, in which there may be several runs."""


GROUPS: dict[str, type[msgspec.Struct]] = {
    one.__name__.lower(): one for one in (Rows, Traces, Flops, Hardware, Memory, Redact)
}
FOR_OPERATORS = (
    *("agent", "strict", "quiet", "insecure", "share", "set_global", "dialect", "memory", "redact"),
    *("local_dir", "local_world_size", "idle_timeout", "journal_limit", "archive_limit"),
    *("stalled_after", "autopsy", "on_event"),
)
"""Settings of a machine or a cluster rather than of a training: `init` accepts them, but does not list them."""
