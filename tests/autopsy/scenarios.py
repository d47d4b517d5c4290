"""Runs that hang, as a table: what their processes do, and what an autopsy must say."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Scenario(NamedTuple):
    """A run that hangs in step 3."""

    kind: str  # the cause that the verdict must name
    who: str = "rank 1"  # its name begins with this
    generate: str = "pass"  # what each rank does in the phase `generate` of step 3; `rank` is its rank
    update: str = "pass"  # the same in the phase `update`
    before: str = ""  # what each rank does before its first step
    phase: str = "update"  # the name of the second phase
    ranks: int = 1  # number of ranks
    gloo: bool = False  # if true, they are ranks of torch.distributed, and each step has an all-reduce
    rollout: str = ""  # what a rollout worker does; empty for none
    server: str = ""  # what a server does; empty for none. Its port is in `SERVER`
    engine: bool = False  # if true, the settings name the server as an inference server
    hidden: int = -1  # a rank that does not record
    needs: str = ""  # a small disk, a file server or little memory, which is made for it
    moves: bool = False  # if true, it records all the time
    variables: Mapping[str, str] = MappingProxyType({})  # variables of the environment


def _on_rank_1(code: str) -> str:
    return f"if rank == 1:\n{textwrap.indent(code.strip(), '    ')}"


_GET = "urllib.request.urlopen(f'http://127.0.0.1:{server}/generate').read()"
_NEVER = "import time; time.sleep(10**6)"
_SILENT = """
import http.server, os, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(10**6)
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["SERVER"])), Handler).serve_forever()
"""
_SINGLE = _SILENT.replace("Threading", "")
_DEAF = """
import os, socket, time
server = socket.create_server(("127.0.0.1", int(os.environ["SERVER"])))
time.sleep(10**6)
"""
_STOPPED = _DEAF.replace("time.sleep", "os.kill(os.getpid(), 19); time.sleep")
_GONE = "import time; time.sleep(10**6)"
_ENGINE = """
import http.server, os, time
tokens = 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global tokens
        if self.path != "/metrics":
            time.sleep(10**6)
        tokens += {rate}
        page = "vllm:num_requests_running {running}\\nvllm:num_requests_waiting {waiting}\\n"
        page += f"vllm:kv_cache_usage_perc {cache}\\nvllm:generation_tokens_total {{tokens}}\\n"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(page.encode())
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["SERVER"])), Handler).serve_forever()
"""
_HUB = """
import os, queue
from multiprocessing.managers import BaseManager
one = queue.Queue()
BaseManager.register("queue", lambda: one)
BaseManager(("127.0.0.1", int(os.environ["SERVER"])), b"key").get_server().serve_forever()
"""
_FROM_HUB = """
from multiprocessing.managers import BaseManager
BaseManager.register("queue")
manager = BaseManager(("127.0.0.1", int(server)), b"key")
manager.connect()
"""
_TAKE = f"{_FROM_HUB}\nmanager.queue().get()"
_MAKE = f"{_FROM_HUB}\nhub = manager.queue()\nhub.qsize()\n"
_LOCKS = """
held = threading.Lock()
def hold():
    with held:
        time.sleep(10**6)
threading.Thread(target=hold, daemon=True).start()
time.sleep(0.2)
"""
_LOGS = """
import logging
class Stuck(logging.Handler):
    def emit(self, record):
        time.sleep(10**6)
log = logging.getLogger("stuck")
log.addHandler(Stuck())
threading.Thread(target=log.warning, args=("first",), daemon=True).start()
time.sleep(0.2)
log.warning("second")
"""
_POOL = """
import concurrent.futures
pool = concurrent.futures.ThreadPoolExecutor(1)
pool.submit(lambda: {}).result()
"""
_ASYNC = """
import asyncio
async def ask():
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server))
    writer.write(b"GET /generate HTTP/1.0\\r\\n\\r\\n")
    await reader.read()
asyncio.run(ask())
"""
_WORKER = """
import multiprocessing
context = multiprocessing.get_context("fork")
def work(queue):
    {}
queue = context.Queue()
worker = context.Process(target=work, args=(queue,), daemon=True)
worker.start()
{}
queue.get()
"""
_LOADER = """
class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, n): time.sleep(10**6)
next(iter(torch.utils.data.DataLoader(Data(), num_workers=1)))
"""
_FULL = """
import errno
os.chdir(os.environ["PLACE"])
while True:
    try:
        open("checkpoint", "ab", 0).write(bytes(1 << 20))
    except OSError:
        time.sleep(0.05)
"""
_TWO_GROUPS = """
second = dist.new_group()
threads = [threading.Thread(target=dist.all_reduce, args=(torch.ones(4), ), kwargs=dict(group=one), daemon=True)
           for one in ((None, second) if rank else (None,))]
for one in threads: one.start()
for one in threads: one.join()
if not rank: dist.barrier()
"""

SCENARIOS: dict[str, Scenario] = {
    # ranks and collectives
    "stopped": Scenario("stopped", gloo=True, ranks=3, generate=_on_rank_1("os.kill(os.getpid(), 19)")),
    "sleeps and holds the GIL": Scenario(
        "sleep", gloo=True, ranks=2, generate=_on_rank_1("ctypes.PyDLL(None).sleep(10**6)")
    ),
    "sleeps without the GIL": Scenario(
        "sleep", gloo=True, ranks=2, generate=_on_rank_1("ctypes.CDLL(None).sleep(10**6)")
    ),
    "left early": Scenario("left", gloo=True, ranks=2, generate=_on_rank_1("run.finish(0); time.sleep(10**6)")),
    "another operation": Scenario(
        "mismatch",
        "rank",
        gloo=True,
        ranks=2,
        generate="dist.barrier() if rank else dist.all_gather([torch.ones(4), torch.ones(4)], torch.ones(4))",
    ),
    "another group": Scenario(
        "mismatch",
        "rank",
        gloo=True,
        ranks=2,
        generate="one, two = dist.new_group(), dist.new_group()\n"
        "if rank: dist.all_reduce(torch.ones(4), group=one)\n"
        "else: dist.all_reduce(torch.ones(4), group=two)",
    ),
    "another group in the same line": Scenario(
        "mismatch",
        "rank",
        gloo=True,
        ranks=2,
        variables={"TORCH_FR_BUFFER_SIZE": "2000"},
        generate="groups = [dist.new_group(), dist.new_group()]\ndist.all_reduce(torch.ones(4), group=groups[rank])",
    ),
    "spins": Scenario("busy", gloo=True, ranks=2, generate="while rank: pass"),
    "works in C": Scenario(
        "busy", gloo=True, ranks=2, generate="import hashlib\nif rank: hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)"
    ),
    "holds a lock": Scenario(
        "sleep", "Thread-1", gloo=True, ranks=2, generate=_on_rank_1(f"{_LOCKS}\nwith held: pass")
    ),
    "logs": Scenario("sleep", "Thread-1", gloo=True, ranks=2, generate=_on_rank_1(_LOGS)),
    "asks a silent reward server": Scenario(
        "no answer", "the server", gloo=True, ranks=2, server=_SILENT, generate=_on_rank_1(_GET)
    ),
    "waits for started work": Scenario(
        "sleep",
        gloo=True,
        ranks=2,
        generate="if rank: time.sleep(10**6)\nwork = dist.all_reduce(torch.ones(4), async_op=True)\nwork.wait()",
    ),
    "backward": Scenario(
        "sleep",
        gloo=True,
        ranks=2,
        before="model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))\n"
        "model(torch.ones(4)).sum().backward()",
        generate="if rank: time.sleep(10**6)\nmodel(torch.ones(4)).sum().backward()",
    ),
    "gathers objects": Scenario(
        "sleep",
        gloo=True,
        ranks=2,
        generate="if rank: time.sleep(10**6)\ndist.all_gather_object([None, None], {'a': 1})",
    ),
    "evaluates alone": Scenario("busy", "rank 0", gloo=True, ranks=2, generate="while not rank: sum(range(10**5))"),
    "a rank that does not record": Scenario(
        "network", "rank 0", gloo=True, ranks=3, hidden=2, generate="if rank == 2: time.sleep(10**6)"
    ),
    # servers
    "silent engine": Scenario("no answer", "the server", server=_SILENT, generate=_GET),
    "server with one thread": Scenario("no answer", "the server", server=_SINGLE, generate=_GET),
    "server that does not accept": Scenario("no answer", "the server", server=_DEAF, generate=_GET),
    "server that is stopped": Scenario("stopped", "the server", server=_STOPPED, generate=_GET),
    "engine that is gone": Scenario(
        "silent",
        "engine",
        server=_GONE,
        engine=True,
        generate="while True:\n  try: urllib.request.urlopen(f'http://127.0.0.1:{server}')\n"
        "  except OSError: time.sleep(0.2)",
    ),
    "engine whose page is silent": Scenario("no answer", "engine", server=_SILENT, engine=True, generate=_GET),
    "full engine": Scenario(
        "full",
        "engine",
        server=_ENGINE.format(running=16, waiting=120, cache=0.99, rate=10),
        engine=True,
        generate=_GET,
    ),
    "stuck engine": Scenario(
        "stuck", "engine", server=_ENGINE.format(running=3, waiting=0, cache=0.5, rate=0), engine=True, generate=_GET
    ),
    "idle engine": Scenario(
        "idle", "engine", server=_ENGINE.format(running=0, waiting=0, cache=0.0, rate=0), engine=True, generate=_GET
    ),
    "weights behind requests": Scenario(
        "behind",
        "engine",
        server=_ENGINE.format(running=16, waiting=40, cache=0.5, rate=10),
        engine=True,
        phase="weight_sync",
        update=_GET,
    ),
    "a thread asks": Scenario("no answer", "the server", server=_SILENT, generate=_POOL.format(_GET)),
    "an event loop asks": Scenario("no answer", "the server", server=_SILENT, generate=_ASYNC),
    # workers and queues
    "rollout worker killed": Scenario(
        "died",
        "rollout 0",
        server=_HUB,
        generate=_TAKE,
        rollout=f"{_MAKE}with run.phase('generate'): os.kill(os.getpid(), 9)",
    ),
    "rollout worker failed": Scenario(
        "died", "rollout 0", server=_HUB, generate=_TAKE, rollout=f"{_MAKE}raise ValueError('no prompt')"
    ),
    "rollout worker ended": Scenario("left", "rollout 0", server=_HUB, generate=_TAKE, rollout=f"{_MAKE}run.finish(0)"),
    "rollout worker stopped": Scenario(
        "stopped", "rollout 0", server=_HUB, generate=_TAKE, rollout=f"{_MAKE}os.kill(os.getpid(), 19)"
    ),
    "rollout worker out of memory": Scenario(
        "died",
        "rollout 0",
        server=_HUB,
        needs="little memory",
        generate=_TAKE,
        rollout=f"{_MAKE}with run.phase('generate'):\n"
        "  open(f\"{os.environ['PLACE']}/cgroup.procs\", 'w').write(str(os.getpid()))\n"
        "  all = [bytes([1]) * (10 << 20) for _ in range(100)]",
    ),
    "polls for a dead worker": Scenario(
        "died",
        "rollout 0",
        generate="while not os.path.exists('batch'): time.sleep(0.1)",
        rollout="with run.phase('generate'): os.kill(os.getpid(), 9)",
    ),
    "circle": Scenario(
        "circle",
        "rank 0",
        server=_HUB,
        generate="listener = socket.create_server(('127.0.0.1', 0))\n"
        "open('port', 'w').write(str(listener.getsockname()[1]))\n" + _TAKE,
        rollout=f"{_MAKE}\nwhile not os.path.exists('port') or not open('port').read(): time.sleep(0.05)\n"
        "time.sleep(0.2)\nsocket.create_connection(('127.0.0.1', int(open('port').read()))).recv(1)",
    ),
    "data worker killed": Scenario(
        "worker died", "child process", generate=_WORKER.format("time.sleep(10**6)", "os.kill(worker.pid, 9)")
    ),
    "data worker sleeps": Scenario("sleep", "child process", generate=_WORKER.format("time.sleep(10**6)", "")),
    "data loader": Scenario("sleep", "child process", before="import torch.utils.data", generate=_LOADER),
    "tool": Scenario("sleep", "child process", generate="import subprocess\nsubprocess.run(['sleep', '1000000'])"),
    "drops what is made": Scenario(
        "drops",
        "rank 0",
        moves=True,
        generate="while True:\n  run.dropped([dict(policy_version=1)] * 4, reason='stale')\n  time.sleep(0.1)",
        rollout="for n in range(10**9):\n  with run.phase('generate'): time.sleep(0.05)",
    ),
    # files, locks, C code
    "a pipe that nobody writes": Scenario("file", "rank 0", generate="os.mkfifo('pipe'); open('pipe')"),
    "a pipe that nobody reads": Scenario(
        "file", "rank 0", generate="os.mkfifo('pipe'); os.write(os.open('pipe', os.O_RDWR), bytes(1 << 20))"
    ),
    "a file lock": Scenario(
        "file",
        "rank 0",
        generate="import fcntl\nholder, waiter = open('lock', 'w'), open('lock', 'w')\n"
        "fcntl.flock(holder, fcntl.LOCK_EX)\nfcntl.flock(waiter, fcntl.LOCK_EX)",
    ),
    "full disk": Scenario("disk full", "rank 0", generate=_FULL, needs="small disk"),
    "a dead file server": Scenario(
        "disk",
        "rank 0",
        needs="file server",
        generate="file = open(f\"{os.environ['PLACE']}/data\", 'rb', 0)\n"
        "os.kill(int(os.environ['FILE_SERVER']), 19)\nfile.read()",
    ),
    "a lock of its own": Scenario("lock", "rank 0", generate="lock = threading.Lock(); lock.acquire(); lock.acquire()"),
    "a semaphore in C": Scenario(
        "native",
        "rank 0",
        generate="libc = ctypes.CDLL(None); one = ctypes.create_string_buffer(64); libc.sem_init(one, 0, 0)\n"
        "libc.sem_wait(one)",
    ),
}
"""Runs that hang."""
WELL = {
    "slow, at the first time": Scenario("well", "", generate="with run.phase('first'): time.sleep(10**6)"),
    "steps": Scenario(
        "well",
        "",
        moves=True,
        update="for n in range(4, 10**9):\n  with run.step(n), run.phase('generate'): time.sleep(0.05)",
    ),
}
"""Runs that are well."""
