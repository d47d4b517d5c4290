"""The real frameworks, each set in an environment of its own, since they want different versions of the same packages.

The checkers of `deploy/` and of the workflows have one too. `nox -f .ci/noxfile.py` runs all sessions, with `-s trl`
one. Some sessions run only by name. Each installs the versions of its lock in `.ci/locks`, which `.ci/lock` renews.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv"  # it links the 6 GB that torch brings, instead of copying them
_ROOT = Path(__file__).parents[1]
_LOCKS = _ROOT / ".ci" / "locks"
_ALONE = ("ray_train", "rllib")
"""Sessions that run only by name: if other tests run on the same two cores, Ray stops waiting for its own processes."""
Packages = tuple[str, ...]
_TESTS = ("pytest>=8.2", "pytest-timeout>=2.3", "pytest-xdist>=3.6", "hypothesis>=6.100")


def _run(
    session: nox.Session,
    packages: tuple[str, ...],
    *names: str,
    first: tuple[str, ...] = (),
    alone: tuple[str, ...] = (),
) -> None:
    """Run the tests of frameworks with some packages; those of `alone` come without their dependencies."""
    environment = _locked(
        session, (*_TESTS, *packages, *first), "pyproject.toml", "--extra", "tensorboard", "--extra", "look"
    )
    if environment is None:
        return
    if first:
        session.install(*first, env=environment)
    if alone:
        session.install("--no-deps", *alone, env=environment)
    session.install("-e", ".[look,tensorboard]", *_TESTS, *packages, env=environment)
    files = [f"tests/frameworks/test_{name}.py" for name in names]
    command = ("pytest", "-n", "0", "-m", "", "-o", f"cache_dir={session.create_tmp()}/tests", *files)
    env = {"REQUIRE_FRAMEWORKS": "1"}
    session.run(*command, "--cache-clear", "--durations=5", env=env, success_codes=[0, 1])
    # As in `.ci/run`: a fault fails twice, what was only late does not. 5: no test had failed.
    session.run(*command, "--last-failed", "--last-failed-no-failures", "none", env=env, success_codes=[0, 5])


def _locked(session: nox.Session, packages: Packages, *others: str) -> dict[str, str] | None:
    """Return the variables that make uv install the versions of the session's lock.

    With `--lock`, write the lock instead: the versions that packages and others need together, for the Python and the
    system that the sessions run on.
    """
    lock = _LOCKS / f"{re.sub(r'[^a-z0-9._]+', '-', session.name).strip('-')}.txt"
    session.chdir(_ROOT)
    if session.posargs[:1] != ["--lock"]:
        return {"UV_CONSTRAINT": str(lock)}
    wanted = Path(session.create_tmp(), "packages.in")
    wanted.write_text("\n".join(packages))
    lock.parent.mkdir(exist_ok=True)
    compile_ = ("uv", "pip", "compile", *session.posargs[1:], "--python-version", "3.11", *others)
    session.run(*compile_, "--output-file", str(lock), str(wanted), external=True)
    return None


@nox.session
def manifests(session: nox.Session) -> None:
    """Check the image, the Kubernetes manifests and the workflows; `.ci/checkov.yaml` lists what does not apply."""
    packages = ("checkov==3.3.30", "zizmor==1.32.0")
    if environment := _locked(session, packages):
        session.install(*packages, env=environment)
        session.run("checkov", "--config-file", ".ci/checkov.yaml")
        session.run("zizmor", "--offline", ".github", "deploy/github")


@nox.session
def trl(session: nox.Session) -> None:
    """TRL and what it stands on, Lightning, and Stable-Baselines3; PyTorch itself is among the slow tests."""
    packages = ("trl==1.16.0", "transformers==5.23.0", "accelerate==1.15.0", "lightning==2.6.6", "torch")
    others = ("stable-baselines3==2.9.2", "opentelemetry-distro", "opentelemetry-instrumentation")
    _run(session, packages + others, "trl", "accelerate", "lightning", "stable_baselines3")


@nox.session
def verl(session: nox.Session) -> None:
    """Real loop of verl, with stand-ins for GPU workers; batches, trackers and timers of SkyRL and OpenRLHF."""
    alone = ("skyrl==0.3.0", "skyrl-gym==0.4.0", "openrlhf==0.11.2")  # their other dependencies are CUDA packages
    alone += ("TransferQueue==0.1.6",)
    imported = ("tensordict", "torch", "loguru", "cachetools", "uvicorn", "fastapi", "aiohttp", "jaxtyping", "pyzmq")
    _run(session, ("verl==0.9.1", *imported), "verl", "skyrl", "openrlhf", first=("torch",), alone=alone)


@nox.session
def trinity(session: nox.Session) -> None:
    """Two versions of Trinity-RFT, whose engine needs GPUs; its trainer loop and its monitors do not."""
    packages = ("torch", "ray==2.48.0", "pandas", "omegaconf", "requests", "tqdm", "safetensors")
    for version in ("0.6.0", "0.5.1"):
        _run(session, packages, "trinity", alone=(f"trinity-rft=={version}",))


@nox.session
def roll(session: nox.Session) -> None:
    """ROLL, from a checkout in `OTEL_RL_SOURCES`: it is on no package index, and its pipelines import much."""
    if not os.environ.get("OTEL_RL_SOURCES") and not session.posargs:
        session.skip("no OTEL_RL_SOURCES")
    packages = ("torch", "tensordict", "ray==2.48.0", "codetiming", "transformers", "datasets", "peft", "omegaconf")
    others = ("hydra-core", "dacite", "more-itertools", "pybase64", "pyzmq", "httpx", "gymnasium", "imageio", "pillow")
    exporters = ("opentelemetry-exporter-otlp", "wandb", "loguru", "jsonlines", "langdetect", "openai")
    _run(session, packages + others + exporters, "roll", alone=("TransferQueue==0.1.6",))


@nox.session
def areal(session: nox.Session) -> None:
    """AReaL, whose engines need GPUs; its trainers, statistics and loggers do not."""
    packages = ("torch", "torchdata", "transformers<=5.3.0", "datasets", "peft", "math-verify")
    others = ("tabulate", "pebble", "tenacity", "lark", "numba", "openai", "aiofiles", "aiohttp", "pybase64", "orjson")
    exporters = ("tensorboardX", "wandb", "swanlab", "trackio", "colorlog")
    servers = ("ray", "flask", "fastapi", "uvicorn", "cloudpickle", "prettytable", "python-dotenv", "regex")
    imported = ("omegaconf==2.4.0.dev2", "hydra-core==1.4.0.dev1", "einops", "setproctitle", "uvloop", "pyzmq", "httpx")
    _run(session, packages + others + exporters + servers + imported, "areal", alone=("areal==1.0.4",))


@nox.session
def slime(session: nox.Session) -> None:
    """slime, from a checkout in `OTEL_RL_SOURCES`: it is on no package index."""
    if not os.environ.get("OTEL_RL_SOURCES") and not session.posargs:
        session.skip("no OTEL_RL_SOURCES")
    _run(session, ("torch", "ray==2.48.0", "wandb", "httpx", "psutil"), "slime", alone=("megatron-core==0.16.1",))


@nox.session
def rllm(session: nox.Session) -> None:
    """rLLM, from a checkout in `OTEL_RL_SOURCES`: it is on no package index."""
    if not os.environ.get("OTEL_RL_SOURCES") and not session.posargs:
        session.skip("no OTEL_RL_SOURCES")
    packages = ("torch", "transformers", "datasets", "polars", "codetiming", "omegaconf", "httpx", "openai", "pillow")
    _run(session, packages, "rllm")


@nox.session
def prime_rl(session: nox.Session) -> None:
    """prime-rl, from a checkout in `OTEL_RL_SOURCES`: it is on no package index. Its trainer needs GPUs."""
    if not os.environ.get("OTEL_RL_SOURCES") and not session.posargs:
        session.skip("no OTEL_RL_SOURCES")
    packages = ("torch", "transformers", "verifiers==0.4.0", "renderers", "prime-pydantic-config", "prime", "tomli-w")
    others = ("wandb==0.27.0", "wandb-workspaces", "loguru", "orjson", "jaxtyping", "beartype", "aiolimiter", "pyzmq")
    _run(session, packages + others, "prime_rl")


@nox.session
def maxent_grpo(session: nox.Session) -> None:
    """Both generations of MaxEnt-GRPO, from checkouts in `OTEL_RL_SOURCES`; skipped without them."""
    alone = ("oat-llm==0.1.3.post1",)  # its other dependencies are CUDA packages
    trainer = ("trl==0.18.0", "transformers==4.53.0", "accelerate==1.4.0", "datasets", "pydantic", "omegaconf", "torch")
    grader = ("math-verify==0.7.0", "pylatexenc", "latex2sympy2-extended", "sympy", "scipy")
    learner = ("dm-tree", "pandas", "tyro", "peft", "rich", "Levenshtein", "einops", *grader)
    _run(session, trainer + learner, "maxent_grpo", "oat_drgrpo", alone=alone)


def _session_of(test: Path) -> None:
    """Make a session of a test that lists its packages as inline script metadata."""
    packages = nox.project.load_toml(test).get("dependencies", [])
    name = test.stem.removeprefix("test_")
    nox.session(lambda session: _run(session, tuple(packages), name), name=name, default=name not in _ALONE)


for _test in sorted((_ROOT / "tests" / "frameworks").glob("test_*.py")):
    if "# /// script" in _test.read_text():
        _session_of(_test)
