"""Reports of results with hostile texts; needs the extra ``report``."""

import json
from unicodedata import category

from evidence_mutants import canonical
from fuzz_judging import judged
from fuzz_samples import results
from fuzz_targets import TARGETS

TEXTS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "a\nFake line: all is well",
]


def test_texts_of_a_result_are_texts_on_the_page_and_in_the_terminal(tmp_path):
    """In names of settings, their values, and parts that were not exercised."""
    tree = json.loads(next(results()))
    tree["not_exercised"] = TEXTS
    tree["design"]["setting"] = {"notes": {text: text for text in TEXTS}}
    data = canonical(tree).encode()
    assert judged(TARGETS["report"], data, tmp_path) == ("value", None)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "&lt;script&gt;alert(1)" in page
    assert not [each for each in page if category(each) == "Cc" and each != "\n"]
