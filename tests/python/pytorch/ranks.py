# Ranks that stay: processes of one gloo group, forked once everything slow is imported, that run functions of this folder by name.
# Neighbours: conftest.py (who starts them), cases.py (what they run).  SPDX-License-Identifier: Apache-2.0
import importlib
import multiprocessing
import os
import runpy
import socket
import sys
import tempfile
import time
import traceback

WORLD = 4
SECONDS = 600
SECONDS_TO_REFUSE = 30


def _serve(rank, store, pipe):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    groups = {p: dist.new_group(list(range(p))) if p < WORLD else dist.group.WORLD for p in range(2, WORLD + 1)}
    while True:
        module, function, ranks, args = pipe.recv()
        try:
            torch._dynamo.reset()
            f = getattr(importlib.import_module(module), function)
            pipe.send(("gives", f(rank, groups.get(ranks), *args)))
        except Exception as e:
            pipe.send(("raises", (type(e).__name__, str(e), traceback.format_exc())))


def _perform(rank, ranks, port, path, arguments, log):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1), os.dup2(out, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")
    sys.stdout.flush()


def perform(path, arguments, ranks, folder):
    """A script as torchrun starts it, in processes forked from this one: what rank 0 prints."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    logs = [os.path.join(folder, f"rank{r}.log") for r in range(ranks)]
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_perform, args=(r, ranks, port, path, arguments, logs[r]), daemon=True) for r in range(ranks)]
    for p in processes:
        p.start()
    for p in processes:
        p.join(SECONDS)
    failed = [r for r, p in enumerate(processes) if p.exitcode != 0]
    for p in processes:
        p.kill()
    said = [open(log).read() for log in logs]
    assert not failed, f"ranks {failed} of {path} failed:\n{said[failed[0]][-4000:]}"
    return said[0]


class Failed(AssertionError):
    """What a function raised on a rank."""

    def __init__(self, rank, kind, message, _):
        super().__init__(f"rank {rank}: {kind}: {message}")
        self.rank, self.kind, self.message = rank, kind, message


class Ranks:
    def __init__(self):
        self.processes = []

    def start(self):
        context = multiprocessing.get_context("fork")
        self.store = tempfile.mktemp(prefix="autosp-store-")
        self.pipes, self.processes = [], []
        for rank in range(WORLD):
            ours, theirs = context.Pipe()
            p = context.Process(target=_serve, args=(rank, self.store, theirs), daemon=True)
            p.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(p)

    def stop(self):
        for p in self.processes:
            p.kill()
            p.join()
        if self.processes and os.path.exists(self.store):
            os.unlink(self.store)
        self.processes = []

    def run(self, module, function, ranks, *args):
        """What each of the first `ranks` ranks says: ("gives", value) or ("raises", ...)."""
        if not self.processes:
            self.start()
        for pipe in self.pipes[:ranks]:
            pipe.send((module, function, ranks, args))
        said = []
        for rank, pipe in enumerate(self.pipes[:ranks]):
            try:
                if not pipe.poll(SECONDS):
                    raise EOFError(f"no answer in {SECONDS} s")
                said.append(pipe.recv())
            except EOFError as e:
                self.stop()
                raise AssertionError(f"rank {rank} hangs or ended: {e}") from None
        return said

    def give(self, module, function, ranks, *args):
        """Of each rank, where all went well."""
        said = self.run(module, function, ranks, *args)
        for rank, (how, what) in enumerate(said):
            if how == "raises":
                print(what[2], file=sys.stderr)
                raise Failed(rank, *what)
        return [what for _, what in said]

    def refuse(self, module, function, ranks, *args):
        """The one message that all ranks raise."""
        start = time.monotonic()
        said = self.run(module, function, ranks, *args)
        assert time.monotonic() - start <= SECONDS_TO_REFUSE
        assert all(how == "raises" for how, _ in said), said
        assert all(what[0] == "Error" for _, what in said), said[0][1][2]
        messages = {what[1] for _, what in said}
        assert len(messages) == 1, messages
        return messages.pop()
