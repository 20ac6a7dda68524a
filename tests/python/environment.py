# The virtual environment of the tests that need PyTorch: made once, shared by all of them.  Neighbours: suite.py, aten_parity.py,
# hf_parity.py (who enter it).  SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys

PACKAGES = ["torch==2.13.0", "transformers==5.24.0", "safetensors", "numpy", "pytest"]
INSIDE = "AUTOSP_VENV_INSIDE"
SKIPPED = 77


def enter(folder=None):
    """Goes on inside the virtual environment (AUTOSP_VENV, or this folder), made here when it is not whole.  Where packages cannot be
    had this ends with 77, for a test runner to count as skipped, and in CI with a failure."""
    if INSIDE in os.environ:
        return
    folder = os.path.abspath(os.environ.get("AUTOSP_VENV") or folder or "build/venv")
    python, done = os.path.join(folder, "bin", "python"), os.path.join(folder, "whole")
    wanted = "\n".join(PACKAGES)
    if not os.path.exists(done) or open(done).read() != wanted:
        try:
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        except (subprocess.CalledProcessError, OSError) as e:
            print(f"{' '.join(PACKAGES)} cannot be installed into {folder} ({e}): nothing was tested", file=sys.stderr)
            sys.exit(1 if os.environ.get("CI") else SKIPPED)
        with open(done, "w") as f:
            f.write(wanted)
    os.environ.update({INSIDE: "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"})
    os.execv(python, [python, "-B", *sys.argv])
