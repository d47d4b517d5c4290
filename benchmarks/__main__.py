"""`python -m benchmarks [NAME …]`: run all benchmarks, or some; show the figures and save them."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from benchmarks import kills, machine, tables

_BENCHMARKS = {
    "log": "benchmarks.log_cost",
    "versions": "benchmarks.log_versions",
    "samples": "benchmarks.samples_cost",
    "rollouts": "benchmarks.rollouts_cost",
    "weights": "benchmarks.weights_cost",
    "phase": "benchmarks.phase_cost",
    "printed": "benchmarks.printed_cost",
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
    "page": "benchmarks.page_cost",
    "why": "benchmarks.why_steps",
    "compare": "benchmarks.compare_pairs",
    "slow": "benchmarks.slow_downs",
    "trainings": "benchmarks.real_trainings",
    "verdicts": "benchmarks.verdicts.measure",
}
_ON_REQUEST = {
    "archive",
    "illness",
    "kills",
    "limits",
    "page",
    "printed",
    "series",
    "texts",
    "timeline",
    "why",
    "compare",
    "slow",
    "trainings",
    "verdicts",
    "versions",
}  # they take too long


_VARIANTS = tuple(
    f"verdicts{part}{form}{load}"
    for part in ("", "_sealed", "_kept", "_all")
    for form in ("", "_plain")
    for load in ("", "_loaded")
    if part or form or load
)
"""Sections of `RESULTS.md` that options make."""


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
    parser.add_argument("--against", default=sys.executable, metavar="PYTHON", help="`versions`: of the other checkout")
    parser.add_argument(
        "--part", choices=["open", "sealed", "kept", "all"], default="open", help="`verdicts`: the scenarios"
    )
    parser.add_argument("--only", default="", metavar="NAME,…", help="`verdicts`: these scenarios alone")
    parser.add_argument("--plain", action="store_true", help="`verdicts`: without any calls but `init` and `log`")
    parser.add_argument("--load", type=int, default=0, metavar="N", help="`verdicts`: busy processes at the same time")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="`verdicts`: scenarios at the same time")
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
        options = {
            "kills": {**counts, "trackers": arguments.trackers.split(",")},
            "limits": {"cut": arguments.cut},
            "versions": {"against": arguments.against},
            "verdicts": {one: getattr(arguments, one) for one in ("part", "only", "plain", "load", "jobs")},
        }
        measured = importlib.import_module(_BENCHMARKS[name]).measure(**options.get(name, {}))
        result = tables.Result(machine.conditions(before), measured)
        tables.show(result)
        section = name
        if name == "verdicts":
            section += "" if arguments.part == "open" else f"_{arguments.part}"
            section += ("_plain" if arguments.plain else "") + ("_loaded" if arguments.load else "")
        if not arguments.only:
            tables.save({section: result}, [*_BENCHMARKS, *_VARIANTS])


if __name__ == "__main__":
    main()
