#!/usr/bin/env python3
"""`count_tests.py FILE` prints PASSED FAILED SKIPPED NAMES_OF_FAILED... from a JUnit file of ctest or pytest."""

from __future__ import annotations

import sys
from xml.etree import ElementTree

# ctest's messages for tests that skipped themselves. Other tests that did not run count as failed, because they lack
# their program, fixture or configuration.
SKIPPED_BY_ITSELF = ("SKIP_RETURN_CODE=", "SKIP_REGULAR_EXPRESSION_MATCHED", "Disabled")


def outcome(case: ElementTree.Element) -> str:
    children = {child.tag: child for child in case}
    if children.keys() & {"failure", "error"} or case.get("status") == "fail":
        return "failed"
    if case.get("status") in ("notrun", "disabled"):
        skipped = children.get("skipped")
        reason = "" if skipped is None else skipped.get("message", "")
        return "skipped" if reason.startswith(SKIPPED_BY_ITSELF) else "failed"
    return "skipped" if "skipped" in children else "passed"


def main() -> None:
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    failures = []
    for case in ElementTree.parse(sys.argv[1]).getroot().iter("testcase"):
        result = outcome(case)
        counts[result] += 1
        if result == "failed":
            failures.append(case.get("name", ""))
    print(*counts.values(), *failures)


if __name__ == "__main__":
    main()
