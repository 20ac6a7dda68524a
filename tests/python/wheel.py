# `pip install ./python` into a fresh virtual environment, and an example run with what it installed.  PyTorch comes from the
# environment of the other tests (environment.py), which the fresh one looks through.
#   python3 wheel.py [VENV]
# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
import sysconfig
import tempfile

import environment

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


def main():
    environment.enter(sys.argv[1] if len(sys.argv) > 1 else None)
    with tempfile.TemporaryDirectory(prefix="autosp-wheel-") as at:
        python = os.path.join(at, "bin", "python")
        subprocess.run([sys.executable, "-m", "venv", at], check=True)
        site = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True, capture_output=True, text=True)
        with open(os.path.join(site.stdout.strip(), "shared.pth"), "w") as f:
            f.write(sysconfig.get_path("purelib") + "\n")
        subprocess.run([python, "-m", "pip", "install", "--quiet", os.path.join(ROOT, "python")], check=True)
        subprocess.run([python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                        os.path.join(ROOT, "examples", "pytorch", "train.py"), "--tokens", "96", "--steps", "5", "--backend", "aot_eager"],
                       check=True, cwd=at, env={k: v for k, v in os.environ.items() if k not in ("AUTOSP_LIBRARY", "PYTHONPATH")})


if __name__ == "__main__":
    main()
