# Resuming gives the bits of the undisturbed run, however often and whenever the run is killed; equal
# runs give equal bits with any number of threads.  Neighbours: program.py (starting the program).
# SPDX-License-Identifier: Apache-2.0
import json
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

    def half(self, *more):
        """The folder half: a run of RUN that ended before its last checkpoints."""
        self.train("half", *more)
        for step in checkpoints(self.path("half"))[1:]:
            shutil.rmtree(self.path("half", step))

    def test_resume_of_a_finished_run(self):
        self.train("whole")
        p = self.train("out", "--resume", "whole", "--json", "-")
        self.assertNotIn('"step",', p.stdout)
        self.assertIn('"resume", "step": 12,', p.stdout)
        for more in [], ["--steps", 5]:
            p = self.train("out", "--resume", "whole", *more)
            self.assertIn("nothing left to do: whole holds step 12, --steps is", p.stdout)
            self.assertNotIn("DIFFERENT", p.stdout)
            self.assertNotIn("loss", p.stdout)

    def test_bf16(self):
        """Weights in checkpoints are those in f32: nothing is lost between two runs."""
        half = ["--dtype", "bf16"]
        self.train("whole", *half)
        self.half(*half)
        self.train("out", "--resume", "half")
        self.assert_equal("whole", "out")
        p = run(*RUN, "--resume", "half", "--dtype", "f32", "--out", "out", cwd=self.dir)
        self.assertEqual(p.returncode, 2, p.stderr)
        self.assertIn("was made with --dtype bf16, not f32", p.stderr)

    def test_all_from_the_checkpoint(self):
        """Nothing but --resume and --out: model, data and every setting are those of the first run, from any folder."""
        other = ["--lr", "1e-3", "--clip", "0.5", "--weight-decay", "0.2", "--seed", "5"]
        self.train("whole", *other)
        self.half(*other)
        os.mkdir(self.path("elsewhere"))
        p = run("train", "--resume", "../half", "--out", "../out", cwd=self.path("elsewhere"))
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertNotIn("->", p.stdout.split("step")[0])
        self.assert_equal("whole", "out")

    def test_graph_text_from_the_checkpoint(self):
        write(self.path("g.ir"), """graph g {
  %ids : i64[B, S] = input {name = "input_ids", role = "tokens"}
  %w : f32[256, 16] = param {name = "w"}
  %o : f32[256, 16] = param {name = "o"}
  %x : f32[B, S, 16] = embedding %ids, %w
  %y : f32[B, S, 256] = linear %x, %o
  %n : i64[B, S] = shift %ids
  %l : f32[] = cross_entropy %y, %n {reduction = "mean"}
  return "loss" = %l
}
""")
        args = ["--data", "text.txt", "--seq", 64, "--steps", 4, "--checkpoint-every", 2, "--out"]
        self.fine("train", "--model", "g.ir", *args, "whole")
        shutil.copytree(self.path("whole"), self.path("half"))
        shutil.rmtree(self.path("half", "step-000004"))
        os.remove(self.path("g.ir"))
        self.fine("train", "--resume", "half", "--out", "out")
        for file in FILES:
            self.assertEqual(read(self.path("whole", "step-000004", file)), read(self.path("out", "step-000004", file)))

    def test_what_may_not_change(self):
        """Which tokens a step sees, and what they become."""
        self.train("whole")
        write_text(self.path("other.txt"), seed=2)
        for option, value in [("batch", 3), ("seq", 128), ("seed", 77), ("dtype", "f64"), ("data", "other.txt")]:
            for base in ["train"], RUN if option != "data" else ["train", "--model", "config.json"]:
                p = run(*base, "--resume", "whole", "--out", "out", f"--{option}", value, cwd=self.dir)
                self.assertEqual(p.returncode, 2, f"{option}: {p.stderr}")
                self.assertIn(f"--{option} ", p.stderr)
                self.assertIn(f"whole/{LAST}", p.stderr)
                self.assertIn("give the same", p.stderr)
                self.assertEqual(len(p.stderr.splitlines()), 1, p.stderr)
                self.assertFalse(os.path.exists(self.path("out")))

    def test_what_may_change(self):
        """Said in one line, and taken."""
        self.train("whole")
        self.half()
        for option, before, value in [("lr", "0.0003", "0.001"), ("warmup", "3", "7"), ("clip", "1", "0.25"),
                                      ("weight-decay", "0.1", "0.3"), ("steps", "12", "15"), ("ranks", "2", "1"),
                                      ("dp", "1", "2")]:
            p = self.fine("train", "--resume", "half", "--out", "out", f"--{option}", value)
            line = [s for s in p.stdout.splitlines() if s.startswith("resume ")]
            self.assertEqual(len(line), 1, p.stdout)
            self.assertIn(f"half/step-000006 with --{option} {before} -> {value}:", line[0])
            made = checkpoints(self.path("out"))[-1]
            if option != "steps":
                self.assertNotEqual(read(self.path("whole", LAST, FILES[0])), read(self.path("out", made, FILES[0])))
            shutil.rmtree(self.path("out"))
        p = self.fine("train", "--resume", "half", "--lr", "0.0003", "--ac", "layer", "--threads", 2, "--out", "out")
        self.assertNotIn("->", p.stdout.split("step")[0]) # no difference, or one without consequence
        self.assert_equal("whole", "out")

    def test_strategy_is_kept(self):
        """What --sp auto came to is the run's, whatever links the machine has on which it goes on."""
        slow = ["--links", "2:100:5000"]
        chosen = [json.loads(self.fine("plan", *RUN, *links, "--json", "-").stdout.splitlines()[0])["strategy"]
                  for links in ([], slow)]
        self.assertNotEqual(*chosen)
        self.train("whole")
        self.half()
        for more in slow, [*slow, "--sp", "auto"]:
            p = self.fine("train", "--resume", "half", "--out", "out", *more)
            self.assertIn(f"--sp {chosen[0]},", p.stdout)
            self.assert_equal("whole", "out")
            shutil.rmtree(self.path("out"))
        p = self.fine("train", "--resume", "half", "--ranks", 4) # other ranks: weighed anew
        self.assertIn("of what --sp auto weighed", p.stdout)
        state = json.loads(read(self.path("half", "step-000006", "state.json")))
        self.assertEqual((state["sp"], state["sp-chosen"]), ("auto", chosen[0]))
        state["sp-chosen"] = "hybrid:3x3"
        write(self.path("half", "step-000006", "state.json"), json.dumps(state))
        p = run("train", "--resume", "half", "--out", "out", cwd=self.dir)
        self.assertEqual(p.returncode, 2, p.stderr)
        self.assertIn("hybrid:3x3", p.stderr)

    def test_data_changed_on_disk(self):
        self.train("whole")
        write_text(self.path("text.txt"), seed=2)
        p = run("train", "--resume", "whole", cwd=self.dir)
        self.assertEqual(p.returncode, 2, p.stderr)
        self.assertIn(os.path.realpath(self.path("text.txt")), p.stderr)
        self.assertIn("changed since", p.stderr)
        os.remove(self.path("text.txt"))
        p = run("train", "--resume", "whole", cwd=self.dir)
        self.assertEqual(p.returncode, 2, p.stderr)
        self.assertIn("--data", p.stderr)
        self.assertIn("text.txt", p.stderr)

    def test_without_master(self):
        """Weights of bf16 that are rounded at random: by seed, step and place alone."""
        half = ["--dtype", "bf16", "--master", "none", "--clip", 0]
        self.train("whole", *half)
        os.makedirs(self.path("part"))
        shutil.copytree(self.path("whole", "step-000006"), self.path("part", "step-000006"))
        self.train("out", "--resume", "part")
        self.assert_equal("whole", "out")
        self.train("fused", *half, "--fuse-optimizer", "--threads", 2)
        self.assert_equal("whole", "fused")
        states = os.path.getsize(self.path("whole", LAST, FILES[1]))
        self.assertLess(os.path.getsize(self.path("whole", LAST, FILES[0])), 0.26 * states) # two states of f32
        p = run(*RUN, "--out", "wide", "--resume", "part", "--master", "f32", cwd=self.dir)
        self.assertEqual(p.returncode, 2, p.stderr)
        self.assertIn("--master none", p.stderr)

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
