# The records of --json, counted against planned bytes, and verify's verdict.  Neighbours: program.py
# (starting the program).  SPDX-License-Identifier: Apache-2.0
import json
import math
import os

from program import Case, main, read, run

BASE = ["--model", "config.json", "--data", "text.txt", "--seq", 128, "--batch", 2, "--threads", 1]
KEYS = {
    "plan": {"ranks": int, "replicas": int, "predicted_peak_bytes_rank": int, "predicted_process_bytes": int, "peak_at": str, "bytes_by_kind": dict,
             "collectives": list, "compile_ms": float, "max_seq": int},
    "step": {"step": int, "loss": float, "grad_norm": float, "tokens": int, "targets": int, "seconds": float, "exchanged_bytes": int,
             "process_bytes": int, "exchange_seconds": (int, float), "mfu": float},
    "verify": {"ranks": int, "loss_1": float, "loss_p": float, "loss_rel": (int, float), "worst_grad": str,
               "worst_grad_rel": (int, float), "params_equal": bool, "ok": bool},
    "levers": {"levers": list},
    "end": {"ok": bool},
}


class Json(Case):
    def records(self, text):
        out = [json.loads(line) for line in text.splitlines()]
        for r in out:
            for key, kind in KEYS[r["record"]].items():
                self.assertIn(key, r)
                self.assertIsInstance(r[key], kind, f"{key} of {r}")
        return out

    def kinds(self, records):
        return [r["record"] for r in records]

    def test_train(self):
        for ranks in 1, 2, 4:
            for ac in "none", "sac", "layer":
                p = self.fine("train", *BASE, "--ranks", ranks, "--ac", ac, "--steps", 3, "--json", "-")
                self.assertEqual(p.stderr, "")
                records = self.records(p.stdout)
                self.assertEqual(self.kinds(records), ["plan", "step", "step", "step", "end"])
                plan, *steps, end = records
                self.assertTrue(end["ok"])
                for c in plan["collectives"]:
                    self.assertTrue({"op", "count", "bytes"} <= set(c), c)
                planned = sum(c["bytes"] for c in plan["collectives"])
                self.assertEqual(planned > 0, ranks > 1)
                for i, s in enumerate(steps):
                    self.assertEqual(s["exchanged_bytes"], planned, f"{ranks} ranks, --ac {ac}")
                    self.assertEqual(s["step"], i + 1)
                    self.assertEqual(s["tokens"], 2 * 128)
                    self.assertEqual(s["targets"], 2 * 127) # the last token of a row predicts nothing
                # fresh weights know nothing: the loss of a uniform guess over 256 bytes
                self.assertAlmostEqual(steps[0]["loss"], math.log(256), delta=0.1)
                self.assertLess(steps[2]["loss"], steps[0]["loss"])

    def test_exchanges(self):
        """Each of 2 layers exchanges Q, K, V and the output; the backward the conjugates of them."""
        p = self.fine("plan", *BASE, "--ranks", 2, "--json", "-")
        plan, _ = self.records(p.stdout)
        count = sum(c["count"] for c in plan["collectives"] if c["op"] == "all_to_all")
        # f32[2, 64, 32] is one rank's share of Q; half of it comes from the other rank.  K and V have
        # half the heads.
        q = 2 * 64 * 32 * 4 // 2
        self.assertEqual(sum(c["bytes"] for c in plan["collectives"] if c["op"] == "all_to_all"),
                         2 * 2 * (q + q // 2 + q // 2 + q))
        self.assertEqual(count, 2 * 2 * 4)

    def test_file(self):
        self.fine("train", *BASE, "--steps", 2, "--json", "log.json")
        records = self.records(read(self.path("log.json")).decode())
        self.assertEqual(self.kinds(records), ["plan", "step", "step", "end"])

    def test_trace(self):
        """Every step of the program once on each thread of each rank, in order and without overlap."""
        for ranks, threads in (1, 2), (2, 1), (2, 2):
            p = self.fine("train", *BASE[:-1], threads, "--ranks", ranks, "--steps", 2, "--profile", "--trace", "trace.json")
            self.assertIn("in kernels", p.stdout)
            events = [e for e in json.loads(read(self.path("trace.json")))["traceEvents"] if e["ph"] == "X"]
            n_steps = int(p.stdout.split(" steps,")[0].split()[-1])
            for rank in range(ranks):
                for thread in range(threads):
                    mine = [e for e in events if (e["pid"], e["tid"]) == (rank, thread)]
                    steps = [e["args"]["step"] for e in mine if e["cat"] == "kernel" or e["cat"] == "exchange"]
                    exchanges = [e for e in mine if e["cat"] == "exchange"]
                    self.assertEqual(len(exchanges) > 0, ranks > 1 and thread == 0)
                    self.assertEqual(steps, sorted(steps))
                    if thread == 0:
                        self.assertEqual(steps, list(range(n_steps)))
                        self.assertEqual([e["name"] for e in mine][-1], "optimizer")
                    mine.sort(key=lambda e: e["ts"])
                    for a, b in zip(mine, mine[1:]):
                        self.assertLessEqual(a["ts"] + a["dur"], b["ts"] + 0.01)

    def test_plan(self):
        p = self.fine("plan", *BASE, "--ranks", 2, "--seq", "max", "--memory", "64MiB", "--json", "-")
        plan, levers, end = self.records(p.stdout)
        self.assertEqual((plan["record"], levers["record"], end["record"]), ("plan", "levers", "end"))
        longest = plan["max_seq"]
        self.assertGreater(longest, 128)
        self.assertLessEqual(plan["predicted_peak_bytes_rank"], 64 << 20)
        fits = ["plan", *BASE, "--ranks", 2, "--memory", "64MiB", "--seq"]
        self.fine(*fits, longest)
        p = run(*fits, longest + 2, cwd=self.dir)
        self.assertEqual(p.returncode, 2)
        self.assertIn(f"--seq {longest}", p.stderr)
        self.assertLessEqual({"--ac budget", "--ranks 4"}, {x["options"].split(" --sp")[0] for x in levers["levers"]})
        for lever in levers["levers"]: # what is said to fit does
            self.assertGreater(lever["max_seq"], longest)
            self.fine(*fits, lever["max_seq"], *lever["options"].replace("DIR", self.dir).split())

    def test_fused_and_away(self):
        """The optimizer in the backward, layers' inputs in files: the same losses, bytes as planned."""
        options = ["train", *BASE, "--ranks", 2, "--ac", "layer", "--steps", 3, "--clip", 0]
        more = ["--fuse-optimizer", "--offload", self.dir]
        plain, within = (self.records(self.fine(*options, *o, "--json", "-").stdout) for o in ([], more))
        self.assertEqual(*([s["loss"] for s in r[1:4]] for r in (plain, within)))
        self.assertLess(within[0]["predicted_peak_bytes_rank"], plain[0]["predicted_peak_bytes_rank"])
        self.assertEqual(within[0]["offload_bytes"], 2 * 64 * 32 * 4) # of the first of two layers
        self.assertIn(f"counted {2 * 2 * 64 * 32 * 4} (equal)", self.fine(*options, *more).stdout)
        self.assertFalse([f for f in os.listdir(self.dir) if f.startswith("autosp-")])

    def test_refused_is_an_end(self):
        p = run("train", *BASE, "--memory", "100KB", "--json", "-", cwd=self.dir)
        self.assertEqual(p.returncode, 2)
        self.assertEqual(self.records(p.stdout), [{"record": "end", "ok": False}])

    def test_replicas(self):
        """The ranks of all replicas against one that takes their batches in turn; exchanged bytes as planned, counted."""
        for dp, more in (2, ["--ranks", 2]), (2, ["--ranks", 1, "--accumulate", 2, "--weigh", "batches"]):
            for dtype in "f32", "f64":
                p = self.fine("verify", *BASE, "--dp", dp, *more, "--dtype", dtype, "--json", "-")
                v, end = self.records(p.stdout)
                self.assertEqual((v["ranks"], v["ok"], v["params_equal"], end["ok"]), (dp * more[1], True, True, True))
        p = self.fine("train", *BASE, "--dp", 2, "--ranks", 2, "--steps", 2, "--json", "-")
        plan, *steps, end = self.records(p.stdout)
        self.assertEqual((plan["ranks"], plan["replicas"]), (2, 2))
        self.assertEqual(sum(c["bytes"] for c in plan["collectives"]), steps[0]["exchanged_bytes"])
        # Gradients over 4 ranks: three slices of a quarter each way, and 24 bytes of each other rank's.
        gradients = plan["bytes_by_kind"]["gradients"]
        self.assertEqual(sum(c["bytes"] for c in plan["collectives"] if c["what"] == "gradients"),
                         2 * gradients * 3 // 4 + 3 * 24)
        alone = self.records(self.fine("train", *BASE, "--batch", 1, "--accumulate", 2, "--steps", 2, "--json", "-").stdout)
        for a, b in zip(alone[1:3], steps):
            self.assertEqual((a["tokens"], a["targets"]), (b["tokens"], b["targets"]))
            self.assertAlmostEqual(a["loss"], b["loss"], delta=1e-5)

    def test_verify(self):
        for dtype, bound in ("f32", (1e-6, 1e-5)), ("f64", (1e-12, 1e-11)):
            for ranks in 2, 4:
                p = self.fine("verify", *BASE, "--ranks", ranks, "--dtype", dtype, "--json", "-")
                v, end = self.records(p.stdout)
                self.assertEqual((v["ranks"], v["ok"], v["params_equal"], end["ok"]), (ranks, True, True, True))
                self.assertLessEqual(v["loss_rel"], bound[0])
                self.assertLessEqual(v["worst_grad_rel"], bound[1])
                self.assertAlmostEqual(v["loss_1"], math.log(256), delta=0.1)


if __name__ == "__main__":
    main()
