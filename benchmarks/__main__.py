"""`python -m benchmarks [NAME …]`: run all benchmarks, or some; show the figures and save them."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from benchmarks import kills, machine, tables

_BENCHMARKS = {
    "log": "benchmarks.log_cost",
    "samples": "benchmarks.samples_cost",
    "rollouts": "benchmarks.rollouts_cost",
    "weights": "benchmarks.weights_cost",
    "phase": "benchmarks.phase_cost",
    "snapshot": "benchmarks.snapshot_cost",
    "import": "benchmarks.import_cost",
    "exporters": "benchmarks.exporter_cost",
    "agent": "benchmarks.agent_cost",
    "scale": "benchmarks.scale_cost",
    "cardinality": "benchmarks.cardinality",
    "forecasts": "benchmarks.forecasts",
    "illness": "benchmarks.illness_rates",
    "texts": "benchmarks.text_alarms",
    "collectives": "benchmarks.collective_cost",
    "stopped": "benchmarks.stopped_rank",
    "trl": "benchmarks.trl_cost",
    "hardware": "benchmarks.hardware_cost",
    "gpu": "benchmarks.gpu_cost",
    "scrape": "benchmarks.scrape_cost",
    "redaction": "benchmarks.redaction_cost",
    "archive": "benchmarks.archive_cost",
    "kills": "benchmarks.kills",
    "limits": "benchmarks.limits",
    "series": "benchmarks.series",
    "timeline": "benchmarks.timeline_frames",
    "why": "benchmarks.why_steps",
    "compare": "benchmarks.compare_pairs",
}
_ON_REQUEST = {
    "archive",
    "illness",
    "kills",
    "limits",
    "series",
    "texts",
    "timeline",
    "why",
    "compare",
}  # they take too long


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"{', '.join(_BENCHMARKS)}; all but {', '.join(sorted(_ON_REQUEST))} if none is given",
    )
    for process, count in kills.KILLS.items():
        parser.add_argument(f"--{process}", type=int, default=count, metavar="N", help=f"`kills`: {count} by default")
    parser.add_argument("--trackers", default=",".join(kills.TRACKERS), help="`kills`: by default %(default)s")
    parser.add_argument("--cut", type=int, default=600, metavar="S", help="`limits`: seconds; %(default)s by default")
    arguments = parser.parse_args()
    names = arguments.names or [name for name in _BENCHMARKS if name not in _ON_REQUEST]
    unknown = [name for name in names if name not in _BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]}; there are: {', '.join(_BENCHMARKS)}")
    for variable in [name for name in os.environ if name.startswith("OTEL_")]:
        del os.environ[variable]  # the figures must not depend on where this machine sends its telemetry
    os.environ["WANDB_ERROR_REPORTING"] = "false"
    os.environ["WANDB_SILENT"] = "true"
    for name in names:
        print(f"{name} …", file=sys.stderr)
        before = machine.load()
        counts = {process: getattr(arguments, process) for process in kills.KILLS}
        options = {"kills": {**counts, "trackers": arguments.trackers.split(",")}, "limits": {"cut": arguments.cut}}
        measured = importlib.import_module(_BENCHMARKS[name]).measure(**options.get(name, {}))
        result = tables.Result(machine.conditions(before), measured)
        tables.show(result)
        tables.save({name: result}, list(_BENCHMARKS))


if __name__ == "__main__":
    main()
