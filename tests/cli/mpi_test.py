# Ranks that are processes: the bits of thread ranks, resuming, and an end for all when one is killed.
# Skipped without mpirun.  Neighbours: program.py (starting the program), tests/parity/mpi.sh.
# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import signal
import subprocess
import time
import unittest

from program import AUTOSP, Case, checkpoints, environment, main, read

MPIRUN = ["mpirun", "-n", "2", "--oversubscribe", AUTOSP]
RUN = ["train", "--model", "config.json", "--data", "text.txt", "--seq", "256", "--warmup", "2", "--ranks", "2",
       "--threads", "1"]
FILES = ["model.safetensors", "optimizer.safetensors"]


def children(pid):
    """Every process below pid."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as f:
                parents.setdefault(int(f.read().rsplit(")", 1)[1].split()[1]), []).append(int(name))
        except OSError:
            pass # it ended meanwhile
    below, todo = [], [pid]
    while todo:
        todo += (more := parents.get(todo.pop(), []))
        below += more
    return below


def command(pid):
    try:
        return read(f"/proc/{pid}/cmdline").split(b"\0")[0].decode()
    except OSError:
        return ""


@unittest.skipUnless(shutil.which("mpirun") and os.path.isdir("/proc/self"), "no mpirun")
class Mpi(Case):
    def mpi(self, *args):
        return subprocess.run([*MPIRUN, *RUN, "--comm", "mpi", *args], cwd=self.dir, env=environment(), timeout=100,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def assert_equal(self, a, b, step):
        for file in FILES:
            self.assertEqual(read(self.path(a, step, file)), read(self.path(b, step, file)), f"{file} of {a} and {b}")

    def test_bits_of_threads(self):
        for dtype in "f32", "f64":
            more = ["--steps", "4", "--dtype", dtype]
            self.fine(*RUN, *more, "--out", f"thread-{dtype}")
            p = self.mpi(*more, "--out", f"mpi-{dtype}")
            self.assertEqual(p.returncode, 0, p.stderr)
            self.assert_equal(f"thread-{dtype}", f"mpi-{dtype}", "step-000004")

    def test_resume_from_threads(self):
        """A run that thread ranks began goes on as processes."""
        more = ["--steps", "6", "--checkpoint-every", "2"]
        self.fine(*RUN, *more, "--out", "whole")
        shutil.copytree(self.path("whole"), self.path("out"))
        shutil.rmtree(self.path("out", "step-000006"))
        p = self.mpi(*more, "--out", "out", "--resume", "out")
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assert_equal("whole", "out", "step-000006")

    def refused(self, p, *words):
        """Exit 2, one message, nothing written."""
        said = [line for line in p.stderr.splitlines() if line.startswith("autosp: ")]
        self.assertEqual(len(said), 1, p.stderr)
        for word in words:
            self.assertIn(word, said[0])
        self.assertEqual(p.returncode, 2, p.stderr)
        self.assertFalse(os.path.exists(self.path("out")))

    def test_bad_input(self):
        """What all processes find before there are ranks is said once."""
        for args, words in [
                (["--data", "none.txt"], ["autosp: cannot open none.txt"]),
                (["--model", "none.json"], ["none.json"]),
                (["--seq", "1"], ["1 tokens", "2 ranks"]),
                (["--lr", "fast"], ["--lr 'fast'"]),
                (["--steps", "0"], ["--steps"]),
                (["--resume", "none"], ["--resume none"]),
                (["--memory", "100kB"], ["--memory"]),
                (["--no-such-option"], ["--no-such-option"]),
        ]:
            with self.subTest(args):
                self.refused(self.mpi(*args, "--out", "out"), *words)

    def test_bad_input_of_one(self):
        """What one process alone finds ends all, and is said to be its."""
        fine = ["-n", "1", AUTOSP, *RUN, "--comm", "mpi", "--out", "out"]
        for wrong in ["--data", "none.txt"], ["--lr", "fast"]:
            for rank in 0, 1:
                jobs = [fine, fine]
                jobs[rank] = [*fine, *wrong]
                p = subprocess.run(["mpirun", "--oversubscribe", *jobs[0], ":", *jobs[1]], cwd=self.dir,
                                   env=environment(), timeout=100, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.refused(p, f"autosp: rank {rank}: ", wrong[-1])

    def together(self, *jobs):
        """One process a job, all of one run."""
        parts = []
        for job in jobs:
            parts += [":"] * bool(parts) + ["-n", "1", AUTOSP, *RUN, "--comm", "mpi", "--out", "out", *job]
        return subprocess.run(["mpirun", "--oversubscribe", *parts], cwd=self.dir, env=environment(), timeout=100,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_sp_case_41(self):
        """Numbers of ranks that mpirun did not start, or that make no sense: said once, by all, before any step."""
        four = ["mpirun", "-n", "4", "--oversubscribe", AUTOSP, *RUN, "--comm", "mpi", "--out", "out"]
        for ranks, words in (["3", ["3", "4"]], ["8", ["8", "4"]], ["0", ["--ranks 0"]], ["-1", ["--ranks"]]):
            with self.subTest(ranks):
                p = subprocess.run([*four, "--ranks", ranks], cwd=self.dir, env=environment(), timeout=100,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.assertFalse([line for line in p.stdout.splitlines() if line.startswith("step ")])
                self.refused(p, *words)
        for args, words in (["--sp", "hybrid:2x4"], ["hybrid:2x4", "8 ranks", "2"]), (["--zero", "3"], ["--zero"]):
            with self.subTest(args):
                self.refused(self.mpi(*args, "--out", "out"), *words)

    def test_sp_case_42(self):
        """Processes that see other tokens, or other lengths, than their peers end before anything is exchanged."""
        with open(self.path("other.txt"), "wb") as f: # one byte of a window is another
            f.write(read(self.path("text.txt")).replace(b"e", b"E", 1))
        for odd, words in ((["--seed", "7"], "the inputs of the first step"),
                           (["--seq", "255"], "the step program"),
                           (["--data", "other.txt"], "the training data")):
            with self.subTest(odd):
                p = self.together(["--steps", "3"], ["--steps", "3", *odd])
                said = [line for line in p.stderr.splitlines() if line.startswith("autosp: ")]
                self.assertEqual(len(said), 1, p.stderr)
                self.assertIn(f"do not agree on {words}", said[0])
                self.assertNotEqual(p.returncode, 0)
                self.assertFalse([line for line in p.stdout.splitlines() if line.startswith("step ")])
                self.assertFalse(os.path.exists(self.path("out", "step-000003")))

    def test_killed_rank(self):
        with open(self.path("said"), "w") as said:
            p = subprocess.Popen([*MPIRUN, *RUN, "--comm", "mpi", "--steps", "1000000", "--checkpoint-every", "2",
                                  "--out", "out"], cwd=self.dir, env=environment(), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=said)
        try:
            limit = time.monotonic() + 60
            while not checkpoints(self.path("out")) and p.poll() is None and time.monotonic() < limit:
                time.sleep(0.05)
            self.assertIsNone(p.poll(), read(self.path("said")))
            ranks = [c for c in children(p.pid) if command(c) == AUTOSP]
            self.assertEqual(len(ranks), 2)
            os.kill(max(ranks), signal.SIGKILL)
            killed = time.monotonic()
            p.wait(timeout=30)
            self.assertLess(time.monotonic() - killed, 10)
            while any(command(c) == AUTOSP for c in ranks) and time.monotonic() - killed < 10:
                time.sleep(0.05)
            self.assertFalse([c for c in ranks if command(c) == AUTOSP])
            self.assertNotEqual(p.returncode, 0)
            self.assertIn("rank 1", read(self.path("said")).decode())
        finally:
            if p.poll() is None:
                p.kill()


if __name__ == "__main__":
    main()
