"""Ports and Prometheus: the metrics endpoint, the head, and the file by which Prometheus finds the run."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from otel_rl.autopsy.doctor.check import Check
from otel_rl.autopsy.doctor.network import ask
from otel_rl.autopsy.sockets import owners_of
from otel_rl.recorder.agent.output.targets import STALE_S
from otel_rl.recorder.directory.agent_start import agent_is_alive, read_status
from otel_rl.recorder.facts import wording
from otel_rl.recorder.settings import head, listeners, otel_environment, tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_rl.autopsy.doctor.check import CheckedMachine
    from otel_rl.recorder.directory.directory import RunDirectory

_PORTS, _PROMETHEUS = "ports", "prometheus"
_OURS = "rl_"
"""The begin of the names of metrics of another run's agent, which any program can use."""


def ports(machine: CheckedMachine) -> Iterator[Check]:
    """Check that the metrics endpoint and the head can listen."""
    options = dict(otel_environment.metric_readers(machine.environ)).get("prometheus")
    if options is not None:
        host, port = str(options["host"]), int(str(options["port"]))
        reason = _taken(host, port)
        if not reason:
            yield Check(_PORTS, "ok", f"the metrics endpoint {host}:{port} is free")
        elif _OURS in ask(f"http://{host}:{port}/metrics").body:
            what = f"{host}:{port} is taken by a program with metrics as a run has them; this run takes the next port"
            yield Check(_PORTS, "ok", what)
        else:
            what = f"another program has the port of the metrics endpoint, {host}:{port} ({reason})"
            fix = "The next free port is used. Set OTEL_EXPORTER_PROMETHEUS_PORT if Prometheus scrapes a fixed one."
            yield Check(_PORTS, "warning", what, fix)
        yield from _protected(machine, host)
    chosen = machine.settings.head if machine.settings is not None else ""
    if chosen:
        yield _head(machine, head.parse(chosen))


def _head(machine: CheckedMachine, place: head.Head) -> Check:
    where = f"{place.host}:{place.port}"
    if head.is_head(place.host, machine.environ):
        reason = _taken("", place.port)
        if not reason:
            return Check(_PORTS, "ok", f"this machine is the head, and {where} is free")
        return Check(
            _PORTS, "warning", f"the port of the head, {where}, is taken ({reason})", "It is well if the run is on."
        )
    try:
        socket.create_connection((place.host.strip("[]"), place.port), 3.0).close()
    except OSError as error:
        fix = "Start the run on the head first, and check the address and firewalls."
        return Check(_PORTS, "failed", f"the head {where} cannot be reached: {error.strerror or error}", fix)
    return Check(_PORTS, "ok", f"the head {where} can be reached")


def _protected(machine: CheckedMachine, host: str) -> Iterator[Check]:
    """Check that an address that other machines reach has a token, and TLS."""
    insecure = machine.settings is not None and machine.settings.insecure
    has_token = bool(tokens.find(machine.environ, use="scrape"))
    try:
        listeners.check_endpoint(host, machine.environ, has_token=has_token, insecure=insecure)
    except ValueError as error:
        what, _, fix = str(error).partition(": ")
        yield Check(_PORTS, "failed", what, fix)


def _taken(host: str, port: int) -> str:
    """Return why nobody else can listen there; empty if a port is free."""
    try:
        family, *_, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # Otherwise a port counts as taken for a minute after a server has ended (TIME_WAIT).
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def prometheus(machine: CheckedMachine) -> Iterator[Check]:
    """Check that Prometheus can find and scrape the agent of the run."""
    if machine.run is None:
        yield Check(_PROMETHEUS, "skipped", "name a RUN to check its metrics endpoint")
        return
    status = read_status(machine.run)
    if status.prometheus is None or not agent_is_alive(machine.run):
        yield Check(_PROMETHEUS, "skipped", "the run has no metrics endpoint now")
        return
    if not _is_own(urlsplit(status.prometheus).port or 0):
        what = f"a program of another user has {status.prometheus}"
        yield Check(
            _PROMETHEUS, "failed", what, "Its answers are not of this run: do not give it the token. Ask its user."
        )
        return
    token = tokens.find(machine.environ, use="scrape").first
    answer = ask(status.prometheus, headers={"Authorization": f"Bearer {token}"} if token else {})
    if answer.problem or answer.status != 200:
        what = answer.problem or f"{status.prometheus} answers with status {answer.status}"
        yield Check(_PROMETHEUS, "failed", what, answer.fix or "Give Prometheus the token for scraping.")
    else:
        yield Check(_PROMETHEUS, "ok", f"{status.prometheus} answers")
    yield _target(machine.run)


def _is_own(port: int) -> bool:
    """Return whether no other user than root listens on a port of this machine, as far as the kernel shows that."""
    return owners_of(port) <= {0, os.geteuid()}


def _target(run: RunDirectory) -> Check:
    file = run.targets(run.host)
    fix = f"Let Prometheus read {file.parent}/*.json, and check that the agent can write there."
    try:
        age = time.time() - file.stat().st_mtime
    except OSError:
        return Check(_PROMETHEUS, "warning", f"there is no target file {file}", fix)
    if age > STALE_S:
        return Check(
            _PROMETHEUS,
            "warning",
            f"the target file {file} was not refreshed for {wording.in_seconds(age)}",
            fix,
        )
    return Check(_PROMETHEUS, "ok", f"the target file is {file}")
