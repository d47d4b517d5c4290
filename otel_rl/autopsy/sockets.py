"""TCP connections of processes, and who is at their other end on this machine, from /proc."""

from __future__ import annotations

import ipaddress
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from otel_rl.autopsy.evidence import ConnectionSeen
from otel_rl.autopsy.kernel import all_pids, files_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ESTABLISHED, _CONNECTS, _PEER_CLOSED, _LISTENS = "01", "02", "08", "0A"
_MOST_PROCESSES, _MOST_CONNECTIONS, _MOST_BYTES = 4096, 64, 8 << 20
_PREFIX = "socket:["


class _Row(NamedTuple):
    local: tuple[str, int]
    remote: tuple[str, int]
    state: str
    unread: int
    user: int
    inode: int


def listeners_at(ports: Iterable[int]) -> Mapping[int, int]:
    """Return the processes that listen on ports of this machine, as far as this user may see them."""
    wanted = {row.inode: row.local[1] for row in _rows() if row.state == _LISTENS and row.local[1] in {*ports}}
    listeners: dict[int, int] = {}
    for pid in all_pids()[:_MOST_PROCESSES] if wanted else ():
        for link in files_of(pid).values():
            if link.startswith(_PREFIX) and (port := wanted.get(int(link[len(_PREFIX) : -1]))) is not None:
                listeners.setdefault(port, pid)
    return listeners


def owners_of(port: int) -> set[int]:
    """Return the users whose programs listen on a port of this machine; none if the kernel does not show them."""
    return {row.user for row in _rows() if row.state == _LISTENS and row.local[1] == port}


def connections_of(pids: Iterable[int]) -> Mapping[int, tuple[ConnectionSeen, ...]]:
    """Return the TCP connections of processes that wait for an answer, or have one, by process."""
    rows = _rows()
    owners: dict[int, int] = {}
    own: dict[int, list[_Row]] = {}
    by_inode = {row.inode: row for row in rows if row.inode}
    wanted = set(pids)
    for pid in [*wanted, *(pid for pid in all_pids()[:_MOST_PROCESSES] if pid not in wanted)]:
        for link in files_of(pid).values():
            if link.startswith(_PREFIX) and (row := by_inode.get(int(link[len(_PREFIX) : -1]))) is not None:
                owners.setdefault(row.inode, pid)
                if pid in wanted:
                    own.setdefault(pid, []).append(row)
    ends = {(row.local, row.remote): row for row in rows}
    listeners = {row.local[1]: row for row in rows if row.state == _LISTENS}
    return {pid: tuple(_connections(pid, of_process, ends, listeners, owners)) for pid, of_process in own.items()}


def _connections(
    pid: int,
    rows: Iterable[_Row],
    ends: Mapping[tuple[tuple[str, int], tuple[str, int]], _Row],
    listeners: Mapping[int, _Row],
    owners: Mapping[int, int],
) -> Iterable[ConnectionSeen]:
    listens = {row.local[1] for row in rows if row.state == _LISTENS}
    open_rows = (row for row in rows if row.state in (_ESTABLISHED, _CONNECTS, _PEER_CLOSED))
    for row in [row for row in open_rows if row.local[1] not in listens][:_MOST_CONNECTIONS]:  # not as the server
        other = ends.get((row.remote, row.local))
        server = other if other is not None and other.inode else None
        if server is None and other is not None:  # the server has not accepted it yet
            server = listeners.get(row.remote[1])
        owner = owners.get(server.inode, 0) if server is not None else 0
        if owner != pid:
            yield ConnectionSeen(
                peer=f"{row.remote[0]}:{row.remote[1]}",
                name=f"{_PREFIX}{row.inode}]",
                pid=owner,
                unread=row.unread,
                peer_unread=other.unread if other is not None else 0,
                is_open=row.state == _ESTABLISHED,
            )


def _rows() -> list[_Row]:
    rows: list[_Row] = []
    for name in ("tcp", "tcp6"):
        with suppress(OSError), Path(f"/proc/net/{name}").open() as file:
            for line in file.read(_MOST_BYTES).splitlines()[1:]:
                with suppress(ValueError, IndexError):  # the last line may be cut, as files are read up to a limit
                    fields = line.split()
                    unread = int(fields[4].partition(":")[2], 16)
                    rows.append(
                        _Row(_end(fields[1]), _end(fields[2]), fields[3], unread, int(fields[7]), int(fields[9]))
                    )
    return rows


def _end(text: str) -> tuple[str, int]:
    raw, port = text.split(":")
    words = bytes.fromhex(raw)
    # The kernel prints an address as 32-bit numbers in the byte order of the machine, an IPv6 address as four of them.
    address = ipaddress.ip_address(struct.pack(f">{len(words) // 4}I", *struct.unpack(f"<{len(words) // 4}I", words)))
    # A server that listens on `::` shows IPv4 clients as ::ffff:a.b.c.d, and their own end has a.b.c.d.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address), int(port, 16)
