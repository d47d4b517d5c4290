"""Machines on one host: namespaces of their own for host name, processes, network, mounts and process groups.

Nothing is made outside them but files below the root directory and one directory for each machine among the kernel's
control groups. A machine ends with the test process, however that ends: its init reads a pipe from it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

_FREEZER = Path("/sys/fs/cgroup/freezer")
_START_S, _END_S = 30, 10
ROOT = "/run/cluster"
"""Where every machine sees the root directory."""
INIT = """
set -eu
root=$1 name=$2; shift 2
mount --make-rprivate /
hostname "$name"
ip link set lo up
if [ -n "${FREEZER:-}" ]; then mount --bind "$FREEZER" /sys/fs/cgroup/freezer; fi
mount -t tmpfs -o mode=755 none /run
mkdir /run/cluster /run/seen /run/munge
mount --rbind "$root" /run/cluster
n=0; for seen in "$@"; do n=$((n + 1)); mkdir "/run/seen/$n"; mount --rbind "$seen" "/run/seen/$n"; done
own=/run/cluster/machines/$name
mount --bind "$own/tmp" /tmp
mount --bind "$own/var-tmp" /var/tmp
mount -t tmpfs -o mode=1777 none /dev/shm
mount --bind /run/cluster/home /home
for file in hosts passwd group; do mount --bind "/run/cluster/etc/$file" "/etc/$file"; done
if [ -e /etc/machine-id ]; then mount --bind "$own/machine-id" /etc/machine-id; fi
n=0; for seen in "$@"; do  # what is below a directory that others may not enter, or that was replaced
  n=$((n + 1)) above=/; IFS=/
  for part in ${seen#/}; do
    above=$above$part
    if [ "$above" != "$seen" ] && [ -d "$above" ] && [ -z "$(find "$above" -maxdepth 0 -perm -o+x)" ]; then
      mount -t tmpfs -o mode=755 none "$above"
    fi
    above=$above/
  done
  unset IFS; mkdir -p "$seen"; mount --rbind "/run/seen/$n" "$seen"
done
echo ready
read -r _ || true
"""
"""The script of a machine's init: a shell, which reaps orphans and ends with its input."""


class User(NamedTuple):
    """An ordinary user; the home is on all machines."""

    name: str
    uid: int

    @property
    def home(self) -> str:
        """Where the home is, as machines see it."""
        return f"/home/{self.name}"


SUPERUSER = User("root", 0)


class RefusedError(RuntimeError):
    """The kernel, or what this process may do, allows no machines."""


class Machines:
    """Machines in one network; the first one has the switch.

    Args:
        root: A directory for all files; it must not be in use.
        names: Their host names.
        users: Who may work there.
        seen: Directories of this host that they see at the same places, whoever may enter those above.
    """

    def __init__(self, root: Path, names: Sequence[str], users: Sequence[User], seen: Sequence[Path]) -> None:
        self.root = root
        self.names = list(names)
        self.has_freezer = _FREEZER.is_dir()
        self._seen = _outermost(seen)
        self._inits: dict[str, int] = {}
        self._processes: list[subprocess.Popen[str]] = []
        self._groups: list[Path] = []
        self._prefix = f"otel-rl-test-{os.getpid()}-{secrets.token_hex(3)}"
        self._make_files(users)

    def start(self) -> None:
        """Start them all.

        Raises:
            RefusedError: The kernel does not allow it.
        """
        if os.geteuid():
            raise RefusedError("namespaces with mounts need root")
        for name in self.names:
            self._start(name)
        switch = self._inits[self.names[0]]
        _checked("nsenter", "-t", str(switch), "-n", "ip", "link", "add", "switch", "type", "bridge")
        _checked("nsenter", "-t", str(switch), "-n", "ip", "link", "set", "switch", "up")
        for number, (name, init) in enumerate(self._inits.items()):
            here, there = ("nsenter", "-t", str(switch), "-n"), ("nsenter", "-t", str(init), "-n")
            far = ("peer", "name", "eth0", "netns", str(init))
            _checked(*here, "ip", "link", "add", f"port{number}", "type", "veth", *far)
            _checked(*here, "ip", "link", "set", f"port{number}", "master", "switch", "up")
            _checked(*there, "ip", "address", "add", f"{self.address(name)}/24", "dev", "eth0")
            _checked(*there, "ip", "link", "set", "eth0", "up")

    def address(self, name: str) -> str:
        """Return the address of a machine."""
        return f"10.77.0.{self.names.index(name) + 1}"

    def own(self, name: str) -> Path:
        """Return where the directories that a machine has for itself are: `tmp` and `var-tmp`."""
        return self.root / "machines" / name

    def outside(self, name: str, path: str) -> Path:
        """Return where this host sees a path of a machine."""
        places = {"/tmp": self.own(name) / "tmp", "/var/tmp": self.own(name) / "var-tmp", "/home": self.root / "home"}
        for inside, place in places.items():
            if path == inside or path.startswith(f"{inside}/"):
                return Path(f"{place}{path.removeprefix(inside)}")
        return Path(path)

    def popen(self, name: str, user: User, command: str, variables: Mapping[str, str] = {}) -> subprocess.Popen[str]:
        """Start a command of the shell on a machine, in the user's home."""
        init = str(self._inits[name])
        within = ["nsenter", "-t", init, "-n", "-u", "-m", "-p", "-i", *(["-C"] if self.has_freezer else [])]
        within += ["-S", str(user.uid), "-G", str(user.uid)]
        home = user.home if user.uid else "/"
        environment = {"PATH": os.defpath, "HOME": home, "USER": user.name, "LANG": "C.UTF-8", **variables}
        pairs = [f"{key}={value}" for key, value in environment.items()]
        whole = ["env", "-i", *pairs, "bash", "-c", f"cd {shlex.quote(home)} && {command}"]
        pipe = subprocess.PIPE
        return subprocess.Popen([*within, *whole], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)

    def close(self) -> None:
        """End all machines, with all that runs there; their mounts and networks go with them."""
        for process in self._processes:
            with contextlib.suppress(OSError):
                process.stdin.close()  # type: ignore[union-attr]
        for name, init in self._inits.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                one = psutil.Process(init)
                one.kill()  # the kernel kills all others of its namespace
                one.wait(_END_S)
            self._inits[name] = 0
        for process in self._processes:
            process.kill()
            process.wait(_END_S)
            for pipe in (process.stdout, process.stderr):
                pipe.close()  # type: ignore[union-attr]
        for group in self._groups:
            _remove_group(group)

    def _start(self, name: str) -> None:
        command = ["unshare", "-u", "-i", "-m", "-n", "-p", "--fork", "--kill-child", "--mount-proc"]
        variables = dict(os.environ)
        if self.has_freezer:
            group = _FREEZER / f"{self._prefix}-{name}"
            self._groups.append(group)
            command = ["bash", "-c", f'echo $$ >{group}/cgroup.procs; exec "$@"', "bash", *command, "-C"]
            variables["FREEZER"] = str(group)
            try:
                group.mkdir()
            except OSError as error:
                raise RefusedError(f"no control groups: {error}") from error
        process = subprocess.Popen(
            [*command, "bash", "-c", INIT, "bash", str(self.root), name, *map(str, self._seen)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=variables,
        )
        self._processes.append(process)
        line = process.stdout.readline()  # type: ignore[union-attr]
        children = psutil.Process(process.pid).children() if process.poll() is None else []
        if line != "ready\n" or len(children) != 1:
            process.kill()
            raise RefusedError(f"{name} does not start: {process.stderr.read().strip()}")  # type: ignore[union-attr]
        self._inits[name] = children[0].pid

    def _make_files(self, users: Sequence[User]) -> None:
        for name in self.names:
            for place in ("tmp", "var-tmp"):
                (self.own(name) / place).mkdir(parents=True)
                (self.own(name) / place).chmod(0o1777)
            (self.own(name) / "machine-id").write_text(secrets.token_hex(16) + "\n")
        for place in ("etc", "home"):
            (self.root / place).mkdir()
        for user in users:
            home = self.root / "home" / user.name
            home.mkdir(mode=0o700)
            os.chown(home, user.uid, user.uid)
        hosts = [f"{self.address(name)} {name}" for name in self.names]
        people = [f"{one.name}:*:{one.uid}:{one.uid}::{one.home}:/bin/bash" for one in users]
        groups = [f"{one.name}:*:{one.uid}:" for one in users]
        for file, before, lines in (
            ("hosts", "127.0.0.1 localhost\n", hosts),
            ("passwd", Path("/etc/passwd").read_text(), people),
            ("group", Path("/etc/group").read_text(), groups),
        ):
            (self.root / "etc" / file).write_text(before + "".join(f"{line}\n" for line in lines))
        for place in (self.root, *self.root.rglob("*")):
            if place.is_dir() and place.parent != self.root / "home" and place.name not in ("tmp", "var-tmp"):
                place.chmod(0o755)


def _outermost(places: Sequence[Path]) -> list[Path]:
    """Return the places that are in no other one."""
    real = sorted({place.resolve() for place in places} | {place.absolute() for place in places})
    return [place for place in real if not any(other in place.parents for other in real)]


def _checked(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RefusedError(f"{' '.join(command)}: {done.stderr.strip()}")


def _remove_group(group: Path) -> None:
    """Remove a control group and those in it; the kernel may take a moment to see that the processes are gone."""
    until = time.monotonic() + _END_S
    while group.exists():
        for one in sorted(group.rglob("*"), key=lambda place: -len(place.parts)):
            if one.is_dir():
                with contextlib.suppress(OSError):
                    one.rmdir()
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > until:
                return
            time.sleep(0.05)
