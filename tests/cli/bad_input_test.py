# Bad input: exit code 2, one line on stderr that names file, key or size and a way out, and nothing
# written.  Neighbours: program.py (starting the program).  SPDX-License-Identifier: Apache-2.0
import os
import struct
import unittest

from program import (Case, join_safetensors, main, read, run, split_safetensors, tree, write, write_config)

TRAIN = ["--data", "text.txt", "--seq", "64", "--steps", "2", "--threads", "1"]


class BadInput(Case):
    def refused(self, args, *names):
        """The command exits with 2, says one line that holds every name, and leaves the folder as it was."""
        before = tree(self.dir)
        p = run(*args, cwd=self.dir)
        said = f"autosp {' '.join(args)}\nexit {p.returncode}\n{p.stderr}"
        self.assertEqual(p.returncode, 2, said)
        lines = p.stderr.splitlines()
        self.assertEqual(len(lines), 1, said)
        self.assertTrue(lines[0].startswith("autosp: "), said)
        for name in names:
            self.assertIn(name, lines[0], said)
        after = tree(self.dir)
        self.assertEqual(sorted(before), sorted(after), said + "files or folders appeared or went")
        self.assertEqual(before, after, said)

    def refused_model(self, model, *names, more=()):
        """Refused by train with an --out that must not appear."""
        self.refused(["train", "--model", model, *TRAIN, "--out", "out", *more], *names)

    def config(self, **changes):
        write_config(self.path("bad", "config.json"), **changes)
        return "bad/config.json"

    # ---- config.json

    def test_missing_config(self):
        self.refused_model("none/config.json", "none/config.json", "No such file")
        self.refused_model("none", "none")
        os.mkdir(self.path("empty"))
        self.refused_model("empty", "empty/config.json", "No such file")

    def test_malformed_config(self):
        write(self.path("bad.json"), '{\n  "model_type": "llama",\n  "hidden_size" 32\n}\n')
        self.refused_model("bad.json", "bad.json:3:")
        write(self.path("bad.json"), "")
        self.refused_model("bad.json", "bad.json:1:")
        write(self.path("bad.json"), "[1]\n")
        self.refused_model("bad.json", "bad.json:1:1", "object")

    def test_config_keys(self):
        self.refused_model(self.config(hidden_size=None), "bad/config.json", "hidden_size", "missing")
        self.refused_model(self.config(hidden_size="wide"), "bad/config.json", "hidden_size", "must be")
        self.refused_model(self.config(num_hidden_layers=0), "bad/config.json", "num_hidden_layers", "possible")
        self.refused_model(self.config(num_hidden_layers=-2), "bad/config.json", "num_hidden_layers", "possible")
        self.refused_model(self.config(vocab_size=2 ** 62), "bad/config.json", "vocab_size", "possible")

    def test_unknown_architecture(self):
        self.refused_model(self.config(architectures=["GPTNeoXForCausalLM"], model_type="gpt_neox"),
                           "bad/config.json", "gpt_neox", "llama")
        self.refused_model(self.config(architectures=["MambaForCausalLM"]), "bad/config.json", "Mamba", "Llama")

    def test_more_tokens_than_learned_positions(self):
        write(self.path("gpt2.json"), '{"model_type": "gpt2", "vocab_size": 256, "n_embd": 16, "n_layer": 1, "n_head": 2,'
              ' "n_positions": 40}')
        self.refused_model("gpt2.json", "embedding (wpe)", "64 positions", "--seq 40 or less", more=["--ranks", "2"])
        self.refused(["plan", "--model", "gpt2.json", "--seq", "max", "--memory", "4MiB"], "has 40 rows")

    def test_heads_not_divisible_by_kv_heads(self):
        self.refused_model(self.config(num_key_value_heads=3), "bad/config.json", "num_key_value_heads", "4", "3")

    # ---- ranks

    def test_more_ranks_than_tokens(self):
        self.refused(["verify", "--model", "config.json", "--data", "text.txt", "--seq", "3", "--ranks", "4"],
                     "3 tokens", "4 ranks", "3 or fewer")

    # ---- data

    def test_vocab_smaller_than_a_byte(self):
        self.refused_model(self.config(vocab_size=100), "text.txt", "256", "vocab_size 100")

    def test_token_beyond_vocab(self):
        write(self.path("t.u16"), struct.pack("<400H", *([7] * 390 + [300] * 10)))
        self.refused(["train", "--model", "config.json", "--data", "t.u16", "--seq", "64", "--out", "out"],
                     "t.u16", "390", "300", "255")
        write(self.path("t.u32"), struct.pack("<400I", *([7] * 399 + [1 << 31])))
        self.refused(["train", "--model", "config.json", "--data", "t.u32", "--seq", "64", "--out", "out"],
                     "t.u32", "399", str(1 << 31))

    def test_data(self):
        write(self.path("empty.txt"), "")
        write(self.path("short.txt"), "twelve bytes")
        write(self.path("odd.u16"), b"x" * 201)
        base = ["train", "--model", "config.json", "--seq", "64", "--out", "out"]
        self.refused(base, "--data")
        self.refused([*base, "--data", "empty.txt"], "empty.txt", "empty")
        self.refused([*base, "--data", "short.txt"], "short.txt", "12", "64", "--seq")
        self.refused([*base, "--data", "odd.u16"], "odd.u16", "201")
        self.refused([*base, "--data", "none.txt"], "none.txt", "No such file")
        self.refused([*base, "--data", "."], "cannot read .", "plain file")

    # ---- weights

    def weights(self):
        """A folder with a model that can be trained; its header and its data."""
        self.fine("train", "--model", "config.json", *TRAIN, "--out", "made")
        write(self.path("m", "config.json"), read(self.path("made", "step-000002", "config.json")))
        return split_safetensors(read(self.path("made", "step-000002", "model.safetensors")))

    def test_weights(self):
        header, data = self.weights()
        file, path = self.path("m", "model.safetensors"), "m/model.safetensors"
        name = "model.layers.1.mlp.up_proj.weight"
        whole = join_safetensors(header, data)
        write(file, whole)
        self.fine("train", "--model", "m", *TRAIN)

        def changed(**fields):
            return {**header, name: {**header[name], **fields}}

        begin, end = header[name]["data_offsets"]
        without = {k: v for k, v in header.items() if k != name}
        lies = [
            ("empty", b"", []),
            ("length cut", whole[:5], []),
            ("header cut", whole[:40], []),
            ("data cut", whole[:-10], []),
            ("length lies", struct.pack("<Q", 1 << 60) + whole[8:], []),
            ("length wraps", struct.pack("<Q", 2 ** 64 - 8) + whole[8:], []),
            ("no JSON", whole[:8] + b"!" + whole[9:], []),
            ("outside", join_safetensors(changed(data_offsets=[begin, len(data) + 4]), data), [name]),
            ("backwards", join_safetensors(changed(data_offsets=[end, begin]), data), [name]),
            ("negative", join_safetensors(changed(data_offsets=[-4, end]), data), [name]),
            ("overflow", join_safetensors(changed(shape=[1 << 40, 1 << 40]), data), [name]),
            ("wrong dtype", join_safetensors(changed(dtype="I32"), data), [name]),
            ("unknown dtype", join_safetensors(changed(dtype="Q7"), data), [name]),
            ("wrong shape", join_safetensors(changed(shape=[32, 64]), data), [name]),
            ("shape against bytes", join_safetensors(changed(shape=[3, 5]), data), [name]),
            ("missing tensor", join_safetensors(
                {**without, "other": header[name]}, data), ["m: ", name, "missing"]),
        ]
        for what, content, names in lies:
            with self.subTest(what):
                write(file, content)
                for ranks in "1", "2":
                    self.refused_model("m", *(names if "missing" in names else [path, *names]), more=["--ranks", ranks])

    # ---- memory, folders, other models

    def test_memory(self):
        self.refused_model("config.json", "--memory", more=["--memory", "100KB"])
        self.refused(["train", "--model", "config.json", "--data", "text.txt", "--seq", "8192", "--memory", "4MiB",
                      "--out", "out"], "--seq 8192", "--memory", "fits is --seq")
        self.refused_model("config.json", "--memory", more=["--memory", "plenty"])

    @unittest.skipUnless(os.path.isdir("/proc/self"), "no folder that refuses everybody")
    def test_unwritable_out(self):
        self.refused(["train", "--model", "config.json", *TRAIN, "--out", "text.txt"], "text.txt", "--out")
        self.refused(["train", "--model", "config.json", *TRAIN, "--out", "text.txt/x"], "text.txt", "--out")
        self.refused(["train", "--model", "config.json", *TRAIN, "--out", "/proc/autosp/x"], "/proc/autosp", "--out")
        self.refused(["train", "--model", "config.json", *TRAIN, "--json", "none/x.json"], "none/x.json", "--json")

    def test_resume(self):
        self.fine("train", "--model", "config.json", *TRAIN, "--out", "made")
        again = ["--resume", "made", "--out", "out"]
        others = [
            ("shape", dict(hidden_size=64, head_dim=8)),
            ("layers", dict(num_hidden_layers=3)),
            ("fewer layers", dict(num_hidden_layers=1)),
            ("tied", dict(tie_word_embeddings=True)),
            ("heads of equal shapes", dict(num_attention_heads=2, num_key_value_heads=1, head_dim=16)),
            ("rope", dict(rope_theta=500000.0)),
            ("eps", dict(rms_norm_eps=1e-3)),
        ]
        for what, changes in others:
            with self.subTest(what):
                self.refused_model(self.config(**changes), "made/step-000002", "another model", more=again)
        base = ["train", "--model", "config.json", *TRAIN]
        self.refused([*base, "--resume", "none", "--out", "out"], "--resume none")
        os.mkdir(self.path("empty"))
        self.refused([*base, "--resume", "empty", "--out", "out"], "empty", "no whole checkpoint")
        self.refused([*base, *again, "--seed", "9"], "made/step-000002", "--seed")
        write(self.path("other.txt"), "z" * 5000)
        self.refused([*base, *again, "other.txt"], "made/step-000002", "--data")

    # ---- graph text, passes, options

    def test_graph_text(self):
        write(self.path("bad.ir"), "this is no graph\n")
        self.refused_model("bad.ir", "bad.ir:1:1")
        self.refused(["opt", "--passes=dce", "bad.ir"], "bad.ir:1:1")
        self.refused(["opt", "--passes=dce", "none.ir"], "none.ir", "No such file")
        write(self.path("bad.ir"), "")
        self.refused_model("bad.ir", "bad.ir:1:")

    def test_unknown_pass(self):
        write(self.path("g.ir"), GRAPH)
        self.fine("opt", "--passes=dce", "g.ir")
        self.refused(["opt", "--passes=dce,polish", "g.ir"], "polish", "dce")

    def test_recomputation_files(self):
        self.refused(["remat"], "remat needs a file")
        self.refused(["remat", "none.json"], "none.json", "No such file")
        write(self.path("p.json"), '{"nodes": [{"name": "x", "op": "input", "bytes": -1}]}')
        self.refused(["remat", "p.json"], "p.json", "bytes of x is -1")
        write(self.path("p.json"), '{"nodes": [{"name": "x", "op": "input", "bytes": 8}]}')
        self.refused(["remat", "p.json", "--policy", "best"], "no policy 'best'")

    def test_options(self):
        self.refused(["train", "--sequence", "64"], "--sequence", "--help")
        self.refused(["train", *TRAIN], "--model")
        base = ["train", "--model", "config.json", *TRAIN]
        self.refused([*base, "--sp", "rign"], "--sp", "rign", "ring", "ulysses")
        self.refused([*base, "--ranks", "4", "--sp", "hybrid:2x3"], "hybrid:2x3", "6 ranks", "4")
        self.refused([*base, "--ac", "most"], "--ac", "most", "layer")
        self.refused([*base, "--ac", "budget"], "--ac budget", "--memory")
        self.refused([*base, "--ac", "budget", "--memory", "1000"], "--memory", "1000 bytes")
        self.refused([*base, "--recompute", "layers.77"], "--recompute layers.77", "layers.*.mlp")
        self.refused([*base, "--save", "nothing"], "--save nothing", "name")
        self.refused([*base, "--dtype", "f8"], "--dtype", "f8", "f32")
        self.refused([*base, "--comm", "pigeon"], "--comm", "pigeon", "thread")
        self.refused([*base, "--steps", "x"], "--steps", "x", "whole number")
        self.refused([*base, "--ranks", "0"], "--ranks", "0")
        self.refused([*base, "--ranks", "-1"], "--ranks", "-1")
        self.refused([*base, "--ranks", "4", "--sp", "hybrid:0x4"], "hybrid:0x4", "hybrid:UxR")
        self.refused([*base, "--accumulate", "0"], "--accumulate", "0")
        self.refused([*base, "--dp", "0"], "--dp", "0")
        self.refused([*base, "--dp", "2", "--batch", "2", "--clip", "0", "--fuse-optimizer"], "--fuse-optimizer", "--dp 2")
        self.refused([*base, "--dp", "2", "--batch", "3"], "--dp 2", "3 sequences", "--batch 2")
        self.refused([*base, "--dp", "1024", "--batch", "1024", "--ranks", "2"], "--dp", "1024 ranks")
        self.refused([*base, "--weigh", "rows"], "--weigh", "rows", "tokens", "batches")
        self.refused([*base, "--seq"], "--seq", "needs a value")
        self.refused(["train", "--model", "config.json", "--data", "text.txt", "--seq", "max"], "--seq max", "--memory")
        self.refused(["verify", "--model", "config.json", "--data", "text.txt", "--seq", "max", "--memory", "1GiB"],
                     "--seq")

    def test_unknown_command(self):
        p = run("fly", cwd=self.dir)
        self.assertEqual(p.returncode, 2)
        self.assertTrue(p.stderr.startswith("autosp: "), p.stderr)
        self.assertIn("fly", p.stderr.splitlines()[0])


GRAPH = """graph tiny {
  %x : f32[B, S, 8] = input {name = "x"}
  %w : f32[8, 8] = param {name = "w"}
  %y : f32[B, S, 8] = linear %x, %w @ "y"
  return "y" = %y
}
"""

if __name__ == "__main__":
    main()
