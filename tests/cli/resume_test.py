# Resuming gives the bits of the undisturbed run, however often and whenever the run is killed; equal
# runs give equal bits with any number of threads.  Neighbours: program.py (starting the program).
# SPDX-License-Identifier: Apache-2.0
import os
import random
import shutil
import time

from program import Case, checkpoints, main, read, run, start, write, write_text

STEPS = 12
RUN = ["train", "--model", "config.json", "--data", "text.txt", "--seq", 256, "--batch", 2, "--steps", STEPS,
       "--warmup", 3, "--ranks", 2, "--checkpoint-every", 3]
LAST = f"step-{STEPS:06d}"
FILES = ["model.safetensors", "optimizer.safetensors"]


class Resume(Case):
    def train(self, out, *more):
        return self.fine(*RUN, "--threads", 1, "--out", out, *more)

    def assert_equal(self, a, b):
        for file in FILES:
            self.assertEqual(read(self.path(a, LAST, file)), read(self.path(b, LAST, file)), f"{file} of {a} and {b}")

    def test_killed(self):
        began = time.monotonic()
        self.train("whole")
        took = time.monotonic() - began
        self.assertEqual(checkpoints(self.path("whole")), ["step-000006", "step-000009", LAST])
        r = random.Random(3)
        kills = 0
        while kills < 10:
            known = checkpoints(self.path("out"))
            if LAST in known: # over before it was killed: another one
                self.assert_equal("whole", "out")
                shutil.rmtree(self.path("out"))
                known = []
            p = start(*RUN, "--threads", 1, "--out", "out", *(["--resume", "out"] if known else []), cwd=self.dir)
            time.sleep(r.uniform(0, took))
            p.kill()
            _, said = p.communicate()
            kills += p.returncode == -9
            self.assertIn(p.returncode, (-9, 0), said)
            self.assertEqual(said, "") # no checkpoint of a killed run is a damaged one
        resume = ["--resume", "out"] if checkpoints(self.path("out")) else []
        self.train("out", *resume)
        self.assert_equal("whole", "out")

    def test_damaged_checkpoint(self):
        self.train("whole")
        damages = [
            ("model.safetensors", lambda b: b[:-100]),
            ("optimizer.safetensors", lambda b: b[:len(b) // 2]),
            ("model.safetensors", lambda b: b[:-1] + bytes([b[-1] ^ 1])),
            ("state.json", lambda b: b[:20]),
            ("model.safetensors", lambda b: b""),
        ]
        for file, damage in damages:
            shutil.copytree(self.path("whole"), self.path("out"))
            bad = self.path("out", LAST, file)
            write(bad, damage(read(bad)))
            p = self.train("out", "--resume", "out")
            self.assertIn(f"out/{LAST}/{file}", p.stderr)
            self.assertIn("the one before", p.stderr)
            self.assertEqual(len(p.stderr.splitlines()), 1, p.stderr)
            self.assert_equal("whole", "out")
            shutil.rmtree(self.path("out"))

    def test_file_gone(self):
        self.train("whole")
        os.remove(self.path("whole", LAST, "optimizer.safetensors"))
        p = self.train("out", "--resume", "whole")
        self.assertIn(f"whole/{LAST}/optimizer.safetensors", p.stderr)
        self.assertEqual(checkpoints(self.path("out")), [LAST])

    def test_all_damaged(self):
        self.train("whole")
        for step in checkpoints(self.path("whole")):
            write(self.path("whole", step, "model.safetensors"), "")
        p = run(*RUN, "--resume", "whole", "--out", "out", cwd=self.dir)
        self.assertEqual(p.returncode, 2, p.stderr)
        self.assertIn("whole holds no whole checkpoint", p.stderr)
        self.assertFalse(os.path.exists(self.path("out")))

    def test_resume_of_a_finished_run(self):
        self.train("whole")
        p = self.train("out", "--resume", "whole", "--json", "-")
        self.assertNotIn('"step"', p.stdout)
        p = self.train("out", "--resume", "whole")
        self.assertIn("nothing left to do: whole holds step", p.stdout)
        self.assertNotIn("DIFFERENT", p.stdout)

    def test_other_settings_are_refused(self):
        """Whatever would change the bits of the run that is continued."""
        self.train("whole")
        for option, value in [("lr", "1e-3"), ("warmup", 7), ("clip", 0.25), ("weight-decay", 0.3), ("batch", 3),
                              ("seq", 24), ("seed", 77), ("steps", 99), ("dtype", "f64")]:
            p = run(*RUN, "--resume", "whole", f"--{option}", value, cwd=self.dir)
            self.assertEqual(p.returncode, 2, f"{option}: {p.stderr}")
            self.assertIn(f"--{option} ", p.stderr)
            self.assertIn("give the same", p.stderr)
            self.assertEqual(len(p.stderr.splitlines()), 1, p.stderr)

    def test_threads(self):
        """Two equal runs, then 1, 2 and 3 threads a rank, on 1 and 2 ranks and every policy."""
        write_text(self.path("text.txt"), 40000)
        for ranks in 1, 2:
            first = None
            for i, (threads, ac) in enumerate([(1, "none"), (1, "none"), (2, "none"), (3, "none"), (3, "layer"),
                                               (2, "sac")]):
                out = f"{ranks}-{i}"
                self.fine(*RUN, "--steps", 3, "--ranks", ranks, "--threads", threads, "--ac", ac, "--out", out)
                made = [read(self.path(out, "step-000003", file)) for file in FILES]
                first = first or made
                self.assertEqual(first, made, f"{ranks} ranks, {threads} threads, --ac {ac}")


if __name__ == "__main__":
    main()
