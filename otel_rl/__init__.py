"""otel-rl: the flight recorder for RL post-training.

A trainer marks its steps and phases and logs its values; every fact is in a local journal before the
call returns. One agent process on each machine turns the journals into OpenTelemetry metrics, spans
and events, and into exact rows for trackers.

Read `recorder` first. Beside it are wings, each of which can be deleted without the others noticing more than its
absence: `frameworks`, `serve`, `autopsy`, `look`, `cli` and `demo`. `export` is the contract of exporters, `testing` is
for the tests of a trainer, and `semconv` has every name.
"""

from typing import TYPE_CHECKING

from otel_rl import moved

moved.install()

__all__ = [
    "Run",
    "SettingsError",
    "attach",
    "carrier",
    "current",
    "init",
    "mark",
    "open_run",
    "open_runs",
    "report",
    "traced",
    "ui",
]

if TYPE_CHECKING:  # mypy would take any name of a module with `__getattr__` for one that exists
    from otel_rl.look.page.inline import report
    from otel_rl.look.reader.runs import open_run, open_runs
    from otel_rl.look.ui.inline import ui
    from otel_rl.recorder.archive.marking import mark
    from otel_rl.recorder.errors import SettingsError
    from otel_rl.recorder.trainer.current import current
    from otel_rl.recorder.trainer.propagation import attach, carrier
    from otel_rl.recorder.trainer.run import Run
    from otel_rl.recorder.trainer.start import init
    from otel_rl.recorder.trainer.traced import traced

    __version__: str
else:

    def __getattr__(name: str) -> object:
        """Return what only some programs ask for, and what takes time to import or to find.

        The first name that a trainer asks for loads all names for trainers, so that none is imported in a step.
        """
        if name == "__version__":
            from importlib.metadata import version

            return version("otel-rl")
        if name == "mark":
            from otel_rl.recorder.archive.marking import mark

            return mark
        if name in ("open_run", "open_runs", "report", "ui"):
            return _of_look(name)
        if name not in __all__:
            fix = "" if name.startswith("_") else "; use the run that otel_rl.init() or otel_rl.current() returns"
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{fix}")
        from otel_rl.recorder.errors import SettingsError
        from otel_rl.recorder.trainer.current import current
        from otel_rl.recorder.trainer.propagation import attach, carrier
        from otel_rl.recorder.trainer.run import Run
        from otel_rl.recorder.trainer.start import init
        from otel_rl.recorder.trainer.traced import traced

        public = (Run, SettingsError, attach, carrier, current, init, traced)
        globals().update({value.__name__: value for value in public})
        return globals()[name]

    def _of_look(name: str) -> object:
        """Return a function that reads runs; without the extra, one that says so, so that it can be imported."""
        try:
            from otel_rl.look.page.inline import report
            from otel_rl.look.reader.runs import open_run, open_runs
            from otel_rl.look.ui.inline import ui
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("otel_rl.recorder"):
                raise

            def needs_look(*_args: object, **_options: object) -> None:
                raise ModuleNotFoundError(f"otel_rl.{name} needs an extra: pip install 'otel-rl[look]'")

            return needs_look
        return {"open_run": open_run, "open_runs": open_runs, "report": report, "ui": ui}[name]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
