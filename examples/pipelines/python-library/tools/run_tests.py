"""Runs the tests and writes what CI reads: a JUnit report, a Cobertura report, and a line with the total."""

import argparse
import sys
import threading
import time
import unittest
from pathlib import Path
from xml.etree import ElementTree

SOURCE = Path("src").resolve()


class Recorder(unittest.TextTestResult):
    """Keeps how each test ended."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.cases = []

    def startTest(self, test):
        super().startTest(test)
        self.began = time.perf_counter()
        self.cases.append({"test": test, "kind": None, "text": "", "seconds": 0.0})

    def stopTest(self, test):
        super().stopTest(test)
        self.cases[-1]["seconds"] = time.perf_counter() - self.began

    def note(self, kind, text):
        self.cases[-1].update(kind=kind, text=text)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note("failure", self.failures[-1][1])

    def addError(self, test, error):
        super().addError(test, error)
        self.note("error", self.errors[-1][1])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note("skipped", reason)


def junit(cases):
    count = {kind: sum(case["kind"] == kind for case in cases) for kind in ("failure", "error", "skipped")}
    suite = ElementTree.Element(
        "testsuite", name="textfold", tests=str(len(cases)),
        failures=str(count["failure"]), errors=str(count["error"]), skipped=str(count["skipped"]),
    )
    for case in cases:
        names = case["test"].id().rpartition(".")
        found = ElementTree.SubElement(
            suite, "testcase", classname=names[0], name=names[2], time=f"{case['seconds']:.6f}"
        )
        if case["kind"]:
            ElementTree.SubElement(found, case["kind"], message=case["text"].splitlines()[-1]).text = case["text"]
    return suite


def lines_of(code):
    """The numbers of all lines that can run."""
    yield from (line for _, _, line in code.co_lines() if line)
    for constant in code.co_consts:
        if hasattr(constant, "co_lines"):
            yield from lines_of(constant)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--junit", type=Path)
    parser.add_argument("--cobertura", type=Path)
    asked = parser.parse_args()
    ran = {}

    def trace(frame, event, _):
        if not frame.f_code.co_filename.startswith(str(SOURCE)):
            return None
        ran.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)
    tests = unittest.defaultTestLoader.discover("tests")
    result = unittest.TextTestRunner(resultclass=Recorder, verbosity=2).run(tests)
    sys.settrace(None)
    ElementTree.ElementTree(junit(result.cases)).write(asked.junit, encoding="unicode")

    report = ElementTree.Element("coverage", version="1")
    classes = report
    for name in ("packages", "package", "classes"):
        classes = ElementTree.SubElement(classes, name)
    total = covered = 0
    for path in sorted(SOURCE.rglob("*.py")):
        lines = sorted(set(lines_of(compile(path.read_text(), str(path), "exec"))))
        hits = ran.get(str(path), set())
        total, covered = total + len(lines), covered + len(hits & set(lines))
        entry = ElementTree.SubElement(classes, "class", name=path.stem, filename=str(path.relative_to(SOURCE.parent)))
        listed = ElementTree.SubElement(entry, "lines")
        for line in lines:
            ElementTree.SubElement(listed, "line", number=str(line), hits=str(int(line in hits)))
    rate = covered / total
    report.set("line-rate", f"{rate:.4f}")
    ElementTree.ElementTree(report).write(asked.cobertura, encoding="unicode")
    print(f"TOTAL {total} {rate:.1%}")
    sys.exit(not result.wasSuccessful())


main()
