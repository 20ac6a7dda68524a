# What the tests of the program share: starting it, tiny models, text to train on, safetensors.
# Neighbours: *_test.py here (the tests), tests/tests.cmake (who runs them).  Python 3 alone.
# SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest

AUTOSP = os.environ.get("AUTOSP", "autosp")

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256, "hidden_size": 32,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64,
    "hidden_act": "silu", "max_position_embeddings": 4096, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
    "initializer_range": 0.02, "tie_word_embeddings": False, "torch_dtype": "float32",
}


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())
    return path


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write_config(path, **changes):
    """config.json of the tiny model; a change to None removes the key."""
    config = {k: v for k, v in {**CONFIG, **changes}.items() if v is not None}
    return write(path, json.dumps(config, indent=1))


def write_text(path, n=20000, seed=1):
    """Text with something to learn: words from a short list."""
    r = random.Random(seed)
    words = ["the", "rank", "of", "a", "step", "holds", "its", "part", "and", "no", "other"]
    return write(path, " ".join(r.choice(words) for _ in range(n // 4))[:n])


def tree(folder):
    """Every path below a folder with its bytes: equal trees mean that nothing was written."""
    out = {}
    for at, folders, files in os.walk(folder):
        for name in folders:
            out[os.path.relpath(os.path.join(at, name), folder)] = None
        for name in files:
            path = os.path.join(at, name)
            out[os.path.relpath(path, folder)] = read(path)
    return out


def environment():
    mine = {k: v for k, v in os.environ.items() if not k.startswith("AUTOSP_")}
    mine.update(OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return mine


def run(*args, cwd=None, timeout=120):
    return subprocess.run([AUTOSP, *map(str, args)], cwd=cwd, env=environment(), timeout=timeout,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def start(*args, cwd=None):
    return subprocess.Popen([AUTOSP, *map(str, args)], cwd=cwd, env=environment(), stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def checkpoints(folder):
    """Names of the checkpoints of a folder, oldest first."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(n for n in names if n.startswith("step-") and not n.endswith(".tmp"))


def split_safetensors(data):
    n = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + n]), data[8 + n:]


def join_safetensors(header, data):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


class Case(unittest.TestCase):
    """A test in a folder of its own, which holds config.json and text.txt."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="autosp-")
        self.addCleanup(self.folder.cleanup)
        self.dir = self.folder.name
        write_config(self.path("config.json"))
        write_text(self.path("text.txt"))

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def fine(self, *args, **kw):
        """Runs a command that must succeed."""
        p = run(*args, cwd=self.dir, **kw)
        self.assertEqual(p.returncode, 0, f"autosp {' '.join(map(str, args))}\n{p.stderr}")
        return p


def main():
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
