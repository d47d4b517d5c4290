"""otel-rl: the flight recorder for RL post-training.

A trainer marks its steps and phases and logs its values; every fact is in a local journal before the
call returns. One agent process on each machine turns the journals into OpenTelemetry metrics, spans
and events, and into exact rows for trackers.

Its rooms, from top to bottom; a room imports those below it: `cli`, `demo`, `view`, `insight`, `integrations`,
`agent`, `otlp` and `archive`, `testing`, `trainer`, `delivery`, `devices`, `setup`, `journal`, `convert`, `semconv`,
`stats`, `export`, `errors`.
"""

from typing import TYPE_CHECKING

__all__ = ["Run", "SettingsError", "attach", "carrier", "current", "init", "open_run", "open_runs", "report", "traced"]

if TYPE_CHECKING:  # mypy would take any name of a module with `__getattr__` for one that exists
    from otel_rl.archive.reader import open_run, open_runs
    from otel_rl.errors import SettingsError
    from otel_rl.trainer.current import current
    from otel_rl.trainer.propagation import attach, carrier
    from otel_rl.trainer.run import Run
    from otel_rl.trainer.start import init
    from otel_rl.trainer.traced import traced
    from otel_rl.view.page.inline import report

    __version__: str
else:

    def __getattr__(name: str) -> object:
        """Return what only some programs ask for, and what takes time to import or to find.

        The first name that a trainer asks for loads all names for trainers, so that none is imported in a step.
        """
        if name == "__version__":
            from importlib.metadata import version

            return version("otel-rl")
        if name in ("open_run", "open_runs"):
            from otel_rl.archive import reader

            return getattr(reader, name)
        if name == "report":
            from otel_rl.view.page.inline import report

            return report
        if name not in __all__:
            fix = "" if name.startswith("_") else "; use the run that otel_rl.init() or otel_rl.current() returns"
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{fix}")
        from otel_rl.errors import SettingsError
        from otel_rl.trainer.current import current
        from otel_rl.trainer.propagation import attach, carrier
        from otel_rl.trainer.run import Run
        from otel_rl.trainer.start import init
        from otel_rl.trainer.traced import traced

        found = (Run, SettingsError, attach, carrier, current, init, traced)
        globals().update({one.__name__: one for one in found})
        return globals()[name]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
