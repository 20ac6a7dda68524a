# The documentation against the program: generated tables are what `autosp docs` prints, every example of graph text parses,
# typechecks and prints as it stands, and the transcript of README.md is what its commands print, but for times and what the
# processor decides.  Neighbours: program.py; docs/ (what is tested); src/cli/docs.c (the tables).
# SPDX-License-Identifier: Apache-2.0
import os
import re

import program
from program import Case, read

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")


def text(name):
    return read(os.path.join(DOCS, name)).decode()


def without_times(transcript):
    """Lines with what machines differ in left out: times, prices, kernels' scratch and the totals that it is in."""
    lines = re.sub(r"(strategy .*\n)(?: {8,}.*ms a step.*\n(?: {8}.*\n)*)", r"\1", transcript).splitlines()
    numbers = re.compile(r"compiled in|^memory|workspace|fragments|scratch|tokens/s|^strategy|^loss|against|worst|^ +\d.*1e-05|: \w+$")
    # Columns are as wide as their numbers: a slow machine's are wider.
    return [re.sub(" +", " ", re.sub(r"[\d.e+-]*\d", "#", x)) if numbers.search(x) else x for x in lines]


class Docs(Case):
    def test_generated_tables(self):
        found = []
        for name in sorted(os.listdir(DOCS)):
            for what, body in re.findall(r"<!-- generated: autosp docs (\w+) -->\n(.*?)\n<!-- end -->", text(name), re.S):
                printed = self.fine("docs", what).stdout.rstrip()
                self.assertEqual(body.replace("```", "").strip("\n"), printed, f"docs/{name}: run `autosp docs {what}` and paste")
                found.append(what)
        self.assertEqual(sorted(found), ["aten", "attributes", "ops", "options", "passes"])

    def test_examples(self):
        n = 0
        for name in sorted(os.listdir(DOCS)):
            for example in re.findall(r"```ir\n(.*?)```", text(name), re.S):
                program.write(self.path("example.ir"), example)
                self.assertEqual(self.fine("opt", "example.ir").stdout, example, f"docs/{name}")
                n += 1
        self.assertGreater(n, 0)

    def test_transcript(self):
        readme = read(os.path.join(DOCS, "..", "README.md")).decode()
        commands, want = re.search(r"Real output.*?\n\n(.*?)\n\n```\n(.*?)```", readme, re.S).groups()
        data = os.path.join(DOCS, "..", "LICENSE")
        printed = ""
        for command in commands.replace("\\\n", " ").splitlines():
            words = re.sub(r"--data \S+", f"--data {data}", command).split()
            self.assertTrue(words[0].endswith("autosp"), command)
            words = [os.path.join(DOCS, "..", x) if x.startswith("examples/") else x for x in words[1:]]
            printed += self.fine(*words).stdout
        self.assertEqual(without_times(want), without_times(printed))


if __name__ == "__main__":
    program.main()
