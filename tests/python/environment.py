# The virtual environment of the tests that need PyTorch: made once, shared by all of them.  Neighbours: suite.py, wheel.py,
# aten_parity.py, hf_parity.py (who enter it).  SPDX-License-Identifier: Apache-2.0
import fcntl
import os
import subprocess
import sys

PACKAGES = ["torch==2.13.0", "transformers==5.24.0", "accelerate", "safetensors", "numpy", "pytest"]
INSIDE = "AUTOSP_VENV_INSIDE"
SKIPPED = 77


def _make(folder):
    """False where packages cannot be had."""
    python, done = os.path.join(folder, "bin", "python"), os.path.join(folder, "whole")
    wanted = "\n".join(PACKAGES)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(folder + ".lock", "w") as lock:  # tests that run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(done) and open(done).read() == wanted:
            return True
        for command in ([sys.executable, "-m", "venv", folder],
                        [python, "-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", "20", *PACKAGES]):
            try:
                said = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                reason = said.stderr.strip().splitlines()[-1:] if said.returncode else None
            except OSError as e:
                reason = [str(e)]
            if reason is not None:
                print(f"{' '.join(PACKAGES)} cannot be installed into {folder} ({' '.join(reason)}): nothing was tested", file=sys.stderr)
                return False
        with open(done, "w") as f:
            f.write(wanted)
    return True


def enter(folder=None):
    """Goes on inside the virtual environment (AUTOSP_VENV, or this folder), made here when it is not whole.  Where packages cannot be
    had this ends with 77, which test runners count as not run."""
    if INSIDE in os.environ:
        return
    folder = os.path.abspath(os.environ.get("AUTOSP_VENV") or folder or "build/venv")
    if not _make(folder):
        sys.exit(SKIPPED)
    python = os.path.join(folder, "bin", "python")
    os.environ.update({INSIDE: "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"})
    os.execv(python, [python, "-B", *sys.argv])
