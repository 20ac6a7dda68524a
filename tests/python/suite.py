# The PyTorch front end's tests (pytorch/), in a virtual environment that is made when it is not there.
#   python3 suite.py LIBAUTOSP [VENV [PYTEST ARGUMENTS...]]
# SPDX-License-Identifier: Apache-2.0
import os
import sys

import environment


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: suite.py LIBAUTOSP [VENV [PYTEST ARGUMENTS...]]")
    environment.enter(sys.argv[2] if len(sys.argv) > 2 else None)
    import pytest

    here = os.path.dirname(os.path.abspath(__file__))
    os.environ["AUTOSP_LIBRARY"] = os.path.abspath(sys.argv[1])
    sys.path.insert(0, os.path.join(here, "..", "..", "python"))
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", os.path.join(here, "pytorch"), *sys.argv[3:]]))


if __name__ == "__main__":
    main()
