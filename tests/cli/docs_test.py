# The documentation against the program: generated tables are what `autosp docs` prints, and every example of graph text parses,
# typechecks and prints as it stands.  Neighbours: program.py; docs/ (what is tested); src/cli/docs.c (the tables).
# SPDX-License-Identifier: Apache-2.0
import os
import re

import program
from program import Case, read

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")


def text(name):
    return read(os.path.join(DOCS, name)).decode()


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


if __name__ == "__main__":
    program.main()
