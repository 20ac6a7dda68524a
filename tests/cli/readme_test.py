# The transcript of README.md is what its commands print, but for times and what the processor decides: the strategy that times
# choose is given, kernels are those of AVX2.  Neighbours: program.py.  SPDX-License-Identifier: Apache-2.0
import os
import re

import program
from program import Case, read

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def without_times(transcript):
    """Times, prices, kernels' scratch and the totals that it is in become #; what is said of strategies is left out."""
    text = re.sub(r"strategy .*\n(?: {8,}.*ms a step.*\n(?: {8}.*\n)*)?", "", transcript)
    numbers = re.compile(r"compiled in|^memory|workspace|fragments|scratch|tokens/s|^loss|against|worst|^ +\d.*1e-05|: \w+$")
    # Columns are as wide as their numbers: a slow machine's are wider.
    lines = [re.sub(" +", " ", re.sub(r"[\d.e+-]*\d", "#", x)) if numbers.search(x) else x for x in text.splitlines()]
    return [re.sub(r"--sp [\w:]+", "--sp #", x) for x in lines]


class Readme(Case):
    def test_transcript(self):
        commands, want = re.search(r"Real output.*?\n\n(.*?)\n\n```\n(.*?)```", read(os.path.join(ROOT, "README.md")).decode(), re.S).groups()
        strategy = re.search(r"^strategy +([\w:]+?):? ", want, re.M).group(1)
        os.environ["ASP_ISA"] = "avx2"
        printed = ""
        for command in commands.replace("\\\n", " ").splitlines():
            words = re.sub(r"--data \S+", f"--data {os.path.join(ROOT, 'LICENSE')}", command).split()
            self.assertTrue(words[0].endswith("autosp"), command)
            words = [os.path.join(ROOT, x) if x.startswith("examples/") else x for x in words[1:]]
            printed += self.fine(*words, "--sp", strategy).stdout
        self.assertEqual(without_times(want), without_times(printed))


if __name__ == "__main__":
    program.main()
