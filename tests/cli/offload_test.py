# The folder of --offload fills up in the middle of a step: all ranks end with one message, what was
# written before is whole, and the run goes on from there with the same bits.
# Neighbours: program.py (starting the program), tests/unit/run/offload_test.c (the file alone).
# SPDX-License-Identifier: Apache-2.0
import os
import resource
import shutil
import subprocess
import threading
import time
import unittest

from mpi_test import MPIRUN, children, command
from program import AUTOSP, Case, checkpoints, environment, main, read

STEPS, EVERY = 32, 16
RUN = ["train", "--model", "config.json", "--data", "text.txt", "--seq", "1024", "--steps", str(STEPS), "--warmup", "3",
       "--ranks", "2", "--threads", "1", "--ac", "layer", "--checkpoint-every", str(EVERY), "--out", "out"]
FILES = ["model.safetensors", "optimizer.safetensors"]
LIMIT = 4096 # bytes: less than a layer's input, so a write ends in the middle


def limit(pid):
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (LIMIT, resource.RLIM_INFINITY))


class Offload(Case):
    def setUp(self):
        super().setUp()
        self.away = self.path("away")
        os.mkdir(self.away)

    def fills_up(self, before, victims, more=()):
        """Behind the first checkpoint files of the processes that victims picks do not grow any more."""
        p = subprocess.Popen([*before, *RUN, "--offload", "away", *more], cwd=self.dir, env=environment(),
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        timer = threading.Timer(100, p.kill)
        timer.start()
        while p.poll() is None and not checkpoints(self.path("out")):
            time.sleep(0.005)
        for pid in victims(p.pid):
            limit(pid)
        _, said = p.communicate()
        timer.cancel()
        lines = [line for line in said.splitlines() if line.startswith("autosp: ")]
        self.assertEqual(len(lines), 1, said)
        self.assertIn("--offload away: the file cannot be written: File too large", lines[0])
        self.assertEqual(os.listdir(self.away), [])
        return p.returncode

    def goes_on(self):
        """What was written before is whole: the rest of the run has the bits of one that nothing disturbed."""
        known = checkpoints(self.path("out"))
        self.assertTrue(known and known[-1] < f"step-{STEPS:06d}", known)
        p = self.fine(*RUN, "--offload", "away", "--resume", "out")
        self.assertEqual(p.stderr, "")
        done = self.path("done")
        os.rename(self.path("out"), done)
        self.fine(*RUN)
        last = f"step-{STEPS:06d}"
        for file in FILES:
            self.assertEqual(read(os.path.join(done, last, file)), read(self.path("out", last, file)), file)

    def test_thread_ranks(self):
        self.assertEqual(self.fills_up([AUTOSP], lambda pid: [pid]), 2)
        self.goes_on()

    @unittest.skipUnless(shutil.which("mpirun") and os.path.isdir("/proc/self"), "no mpirun")
    def test_one_process_of_two(self):
        mine = os.path.basename(AUTOSP)
        picks = lambda pid: [p for p in children(pid) if os.path.basename(command(p)) == mine][:1]
        self.assertNotEqual(self.fills_up(MPIRUN, picks, ["--comm", "mpi"]), 0)


if __name__ == "__main__":
    main()
