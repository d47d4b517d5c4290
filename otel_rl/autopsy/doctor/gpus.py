"""NVIDIA's driver, asked in a process of its own: a driver that hangs holds up whoever asks, for good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from otel_rl.autopsy.doctor.check import NOT_CHECKED, Check
from otel_rl.recorder.facts import wording
from otel_rl.recorder.files import programs
from otel_rl.recorder.files.asked_programs import finish

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_rl.autopsy.doctor.check import CheckedMachine

_NAME = "gpus"
_PATIENCE_S = 8.0
_ASKED = """
import json, pynvml
found = {"gpus": [], "lost": [], "error": ""}
try:
    pynvml.nvmlInit()
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            pynvml.nvmlDeviceGetMemoryInfo(handle)
            pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
            found["gpus"].append(str(pynvml.nvmlDeviceGetUUID(handle)))
        except pynvml.NVMLError_NotSupported:
            found["gpus"].append(str(index))
        except pynvml.NVMLError as error:
            found["lost"].append(f"GPU {index}: {error}")
except pynvml.NVMLError as error:
    found["error"] = type(error).__name__.removeprefix("NVMLError_")
    found["text"] = str(error)
print(json.dumps(found))
"""
_ERRORS = {
    "LibRmVersionMismatch": "The driver was updated while it was loaded: restart the machine, or reload its modules.",
    "DriverNotLoaded": "Load the kernel module: `sudo modprobe nvidia`; `dmesg` says why it is not loaded.",
    "NoPermission": "Let this user read /dev/nvidia*.",
    "LibraryNotFound": "Start the container with its GPUs: `--gpus all`, or the NVIDIA runtime.",
}
_LOST = "The GPU fell off the bus: drain the machine, look for `Xid` in `dmesg`, and restart it."
_PRESENT = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"))


def gpus(machine: CheckedMachine) -> Iterator[Check]:
    """Check that the driver answers, and that each GPU does."""
    process = programs.start_python(
        *("-c", _ASKED), environment=machine.environ, output=programs.PIPE, errors=programs.PIPE, is_detached=True
    )
    try:
        answer = finish(process, within=_PATIENCE_S)
    except programs.TooLate:
        what = f"the driver does not answer within {wording.seconds(_PATIENCE_S)}"
        yield Check(_NAME, "failed", what, "Look for `Xid` in `dmesg`; a driver that hangs needs a restart.")
        return
    if answer.code:
        yield Check(_NAME, "skipped", f"{NOT_CHECKED}{answer.errors.decode(errors='replace').strip()[-200:]}")
        return
    yield from verdicts(json.loads(answer.output), is_present=any(place.exists() for place in _PRESENT))


def verdicts(answers: dict[str, list[str] | str], *, is_present: bool) -> Iterator[Check]:
    """Return what the answers of the driver mean; `is_present` says whether the machine has its files."""
    kind = str(answers["error"])
    if kind in ("LibraryNotFound", "DriverNotLoaded") and not is_present:
        yield Check(_NAME, "ok", "no NVIDIA driver, so no GPU is measured")
    elif kind:
        fix = _ERRORS.get(kind, "Compare with `nvidia-smi`, and look into `dmesg`.")
        yield Check(_NAME, "failed", f"NVML cannot be used: {answers.get('text') or kind}", fix)
    else:
        yield from (Check(_NAME, "failed", f"{text}", _LOST) for text in answers["lost"])
        count = len(answers["gpus"])
        yield Check(_NAME, "ok", f"{count} GPU{'' if count == 1 else 's'} answer{'s' if count == 1 else ''}")
