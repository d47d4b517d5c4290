"""The settings of a run: their names, types, bounds and defaults.

`otel_rl.recorder.settings.loading` reads them from the keywords of `init`, the environment and a file.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from otel_rl.recorder.settings import given, head
from otel_rl.recorder.settings.given import Convert, ExporterSpec

INSTRUMENT_VARIABLE, CAPTURE_VARIABLE = "OTEL_RL_INSTRUMENT", "OTEL_RL_CAPTURE"
"""Frameworks that a process instruments, and trackers that it captures, from its start."""
TEE_VARIABLE = "OTEL_RL_OUTPUT_TEE"
"""The variable of `output.tee`."""
STARTED_VARIABLE = "OTEL_RL_STARTED"
"""The variable of `otel-rl run`: the process that it became, until a trainer has said that it is the one."""
SECRET_OPTIONS_VARIABLE = "OTEL_RL_SECRET_OPTIONS"
"""The variable of the agent: a JSON object with the secret options by path, such as `wandb/settings/api_key`."""

MARK_VARIABLE = "OTEL_RL_RECORDER_MARK"
"""The variable by which the agent and everything that it starts is known: a value that no other agent has."""

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
PathText = Annotated[str, Convert(given.path_text, is_path=True)]
HeadAddress = Annotated[str, Convert(check=head.parse)]
Reaction = Annotated[str, Convert(check=given.check_reaction)]
FunctionName = Annotated[str, Convert(given.function_name, given.check_function)]
Exporters = Annotated[tuple[ExporterSpec, ...], Convert(given.exporter_specs, is_complete=True)]
Quantiles = Annotated[
    tuple[Ratio, ...], Meta(description="a list such as [0.5, 0.95], each between 0 and 1"), Convert(given.listed)
]
Urls = Annotated[
    tuple[Url, ...], Meta(description="a list of URLs such as ['http://node1:8000/metrics']"), Convert(given.listed)
]
Metrics = Annotated[
    str | tuple[str, ...],
    Meta(description="'usual', 'full', a list of patterns such as ['loss', 'time/*'], or a function of the values"),
    Convert(given.metrics, given.check_metrics),
]
Patterns = Annotated[
    tuple[str, ...],
    Meta(description=r"a list of regular expressions such as ['ACME-\d{6}'], none of an empty text"),
    Convert(given.expressions, given.check_expressions),
]
Names = Annotated[tuple[str, ...], Meta(description="a list of names such as ['*_badge']"), Convert(given.listed)]
Reducers = Annotated[
    dict[str, str | tuple[str, ...]],
    Meta(description="a mapping such as {'tokens': 'sum', 'reward': ['mean', 'p95']}"),
    Convert(given.reducers, given.check_reducers),
]


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that trackers receive: how often, what is in them, and how long they wait for ranks."""

    every: Count = 1  # trackers receive one row every so many steps; 0 for never
    first: bool = True
    """If true, step 0 has a row of its own. If false, it belongs to the row of step `every`, like the steps in between.
    """
    window: Literal["mean", "last"] = "mean"
    """The mode "mean" reduces a row over the steps since the last one; "last" sends the values of its own step."""
    quantiles: Quantiles = ()
    """Quantiles of observations that rows have in addition to mean, max, min, std, sum and count."""
    metrics: Metrics = "usual"
    """Metrics that trackers receive: "usual", which leaves memory around phases to the archive and to instruments,
    except for ROLL; "full"; name patterns (`!` excludes a pattern), or a function that takes and returns the values
    by name, or its `module:qualname`.
    """
    limit: PositiveInt = 10_000  # maximum number of metric names that trackers receive; more are counted
    deadline: Seconds = 10.0  # seconds after which a step is closed even if ranks are missing
    anomalies: bool = True
    """If true, the agent looks in rows for signs that the training is ill, and makes events of them."""

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
    """Trace sampling: the steps and spans that are exported."""

    ratio: Ratio = 1.0
    """Share of the traces that are exported. Slow and failed steps, and steps with an evaluation or a checkpoint, are
    always exported. The archive gets every span.
    """
    budget: Count = 2000
    """Number of spans per minute that are exported of traces outside of steps, such as trajectories. If there are more,
    a smaller share of these traces is exported. Failed ones have a second budget of this size.
    """


class Flops(msgspec.Struct, frozen=True, kw_only=True):
    """The model and the device, for FLOP/s and the model FLOPs utilization."""

    parameters: NonNegative = 0.0  # trainable parameters of the model
    per_token: NonNegative = 0.0  # FLOPs for training on one token; 0 for 6 per parameter
    peak: NonNegative = 0.0  # peak FLOP/s of one device


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """The hardware poller of the agent, and the inference servers."""

    enabled: bool = True  # if true, GPUs, host, processes and cgroup are measured. `hardware=False` sets only this
    interval: Seconds = 10.0  # seconds between two measurements; at least 1 for GPUs
    flush_interval: Seconds = 10.0  # seconds between two exports of measurements to trackers
    pcie: bool = False  # if true, PCIe throughput is measured too, which takes the driver 20 ms each time
    engines: Urls = ()
    """URLs of the metrics endpoints of inference servers, such as `http://node1:8000/metrics`. Rows have their load,
    and a Prometheus that finds this run also finds them.
    """


class PrintedOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The lines that processes print: they stay in the directory of the run, unless they are sent."""

    enabled: bool = True
    """If true, printed lines are recorded where standard output and error are files, and messages of logging.
    `output=False` records neither.
    """
    tee: bool = False
    """If true, they are also recorded where they are a terminal or a pipe. `output=True` sets this."""
    logging: bool = True  # if true, messages of Python's logging are recorded, with their severity
    send: bool = False  # if true, OTLP and W&B get them
    per_second: PositiveInt = 1000  # lines of a process and second that are kept, on average over ten seconds
    limit: PositiveInt = 64 << 20
    """Characters of a process that are kept of each stream. The first and the last lines, and errors, are always kept.
    """


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements on the device of the trainer: its clock and its allocator."""

    device_clock: bool = True  # if true, phases are also timed by the device's clock
    peaks: Literal["shared", "reset"] = "shared"
    """The mode "shared" leaves the allocator's peaks alone; "reset" resets them at the start of each phase, so that its
    peak is exact.
    """
    history: Count = 0
    """Number of allocator events kept for a report of running out of memory; each takes some kilobytes of host memory.
    """


class Redact(msgspec.Struct, frozen=True, kw_only=True):
    """Secrets of your own, which are redacted like those that otel-rl knows."""

    patterns: Patterns = ()  # regular expressions of secrets in texts. The variable has one, or a list in JSON
    names: Names = ()
    """Names of parameters, attributes and columns whose values are secrets; `*` stands for any characters."""
    function: FunctionName = ""
    """`module:qualname` of a function that gets each text and the name of its value in the trainer's process, and
    returns the text that is recorded.
    """


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that the agent reads too."""

    reduce: Reducers = {}
    """Reducers by name pattern: one or several of mean, max, min, sum, last, std, count, geomean, and quantiles such as
    p95.
    """
    head: HeadAddress = ""
    """`host:port` of the agent that makes the rows of all machines, on the machine that owns the address; empty for one
    machine. An address that other machines reach needs a token (`otel-rl token`) and the prefix `https://`. The head
    also receives spans of inference servers.
    """
    insecure: bool = False
    """If true, addresses that other machines reach may be used without TLS. They need a token all the same."""
    share: Literal["none", "group", "all"] = "none"
    """Other users who may read the files of the run: "none", the "group" of the directory, or "all"."""
    strict: bool = False
    """If true, `init` raises `SettingsError` where it would otherwise warn and record in another way: a directory that
    cannot be written, a port in use, a run that another process records.
    """
    stalled_after: NonNegative = 0.0
    """Seconds after which a process counts as stalled if it stays in a phase, or outside of any inside or behind a
    step. 0 learns the time of each phase: five times its longest time, and at least one minute; 30 minutes for a
    phase that did not end before.
    """
    cost_per_gpu_hour: NonNegative = 0.0
    """Price of an hour of a GPU, in any currency, for the cost of the run; 0 if it is unknown."""
    autopsy: bool = True  # if true, an autopsy is made when a process is stalled or dies, at most eight times
    rows: Rows = Rows()
    traces: Traces = Traces()
    flops: Flops = Flops()
    hardware: Hardware = Hardware()
    output: PrintedOutput = PrintedOutput()
    redact: Redact = Redact()


class Settings(AgentSettings, frozen=True, kw_only=True):
    """All settings of a process, complete and checked."""

    project: str = ""  # name by which trackers group runs; by default the script's
    name: str = ""  # display name of the run; by default its id
    id: FileName = ""  # identity of the run. A second start with the same id is another attempt of the run
    dir: PathText = "runs"  # directory of the run directories
    exporters: Exporters = (ExporterSpec("jsonl"),)
    """Exporters by name, with options in a mapping, or classes and functions that build one."""
    rank: Count = 0  # number of this process among the trainer processes of the run, from 0
    world_size: PositiveInt = 1  # number of trainer processes of the run
    role: FileName = ""  # role of this process, if it is not a trainer rank: driver, rollout, reward
    dialect: str = "auto"  # framework whose metric names are expected; "auto" detects it
    content: bool = False  # if true, texts such as prompts and completions may leave the process
    agent: Literal["auto", "off"] = "auto"  # "auto" starts the agent of this machine; "off" only records
    set_global: bool = False  # if true, this run's tracer provider becomes OpenTelemetry's global one
    quiet: bool = False  # if true, `init` and `finish` print nothing
    memory: Memory = Memory()
    local_dir: PathText = ""
    """Directory for journals if `dir` is shared by machines. Each machine needs its own, and it must outlive the job.
    If empty, `/var/tmp`, or the temporary directory if `/var/tmp` cannot be used.
    """
    local_world_size: Count = 0
    """Number of trainer processes on this machine, for which first rows wait; by default the launcher's, or without
    `head` all. 0 if unknown.
    """
    idle_timeout: Seconds = 60.0  # seconds without a living trainer or progress after which the agent ends
    journal_limit: PositiveInt = 1 << 30
    """Maximum size in bytes of the undelivered journal of each process, and of the outbox."""
    archive_limit: Count = 4 << 30
    """Size in bytes of the archive above which old messages and spans are thinned; 0 for no archive."""
    on_event: Reaction = ""
    """A command, or the URL of a webhook, that gets each event of otel-rl as JSON. The command gets it on standard
    input; it is split into words as in a shell, and no shell runs it.
    """


class JobSettings(Settings, frozen=True, kw_only=True):
    """Settings whose `id` is the launcher's identity of a job, in which there may be several runs."""


class NewSettings(Settings, frozen=True, kw_only=True):
    """Settings whose `id` is a random one, as nobody gave any."""


class GivenIdSettings(Settings, frozen=True, kw_only=True):
    """Settings whose `id` is given, but not with `dir` in code: trainings in other directories may have it too."""


GROUPS: dict[str, type[msgspec.Struct]] = {
    group.__name__.lower(): group for group in (Rows, Traces, Flops, Hardware, Memory, Redact)
} | {"output": PrintedOutput}
FOR_OPERATORS = (
    *("agent", "strict", "quiet", "insecure", "share", "set_global", "dialect", "memory", "redact"),
    *("local_dir", "local_world_size", "idle_timeout", "journal_limit", "archive_limit"),
    *("stalled_after", "autopsy", "on_event", "cost_per_gpu_hour"),
)
"""Settings of a machine or a cluster rather than of a training: `init` accepts them, but does not list them."""
