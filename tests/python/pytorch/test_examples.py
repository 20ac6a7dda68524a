# Every example of examples/pytorch on two ranks, as a user starts it: its loss falls.  SPDX-License-Identifier: Apache-2.0
import glob
import os
import re
import subprocess
import sys

import pytest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
EXAMPLES = sorted(glob.glob(os.path.join(ROOT, "examples", "pytorch", "*.py")))
CHANCE = 5.5452  # ln 256: of a model that knows nothing


@pytest.mark.parametrize("path", EXAMPLES, ids=os.path.basename)
def test_example(path):
    environment = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    said = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", path, "--tokens", "96",
                           "--steps", "10", "--backend", "aot_eager"], env=environment, capture_output=True, text=True, timeout=600)
    assert said.returncode == 0, said.stderr[-4000:]
    losses = [float(x) for x in re.findall(r"loss (\d+\.\d+)", said.stdout)]
    assert losses and losses[-1] < CHANCE - 0.5, said.stdout
