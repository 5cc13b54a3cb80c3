"""The check of a finished site finds what is wrong with it."""

import pytest

from docs.site.checking import check_site


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="b.html#there">b</a>', None),
        ('<a href="/b.html">b</a>', None),
        ('<a href="https://example.org">elsewhere</a>', None),
        ('<a href="c.html">c</a>', "links to c.html, which does not exist"),
        ('<a href="b.html#gone">b</a>', "links to b.html#gone, but that page has no such anchor"),
        ('<script src="https://cdn.example.org/x.js"></script>', "loads https://cdn.example.org/x.js from"),
        ('<link rel="stylesheet" href="//fonts.example.org/x.css">', "loads //fonts.example.org/x.css from"),
        ('<img src="gone.png">', "loads gone.png, which does not exist"),
    ],
)
def test_wrong_references_are_found(tmp_path, body, problem):
    (tmp_path / "a.html").write_text(body)
    (tmp_path / "b.html").write_text('<h2 id="there">There</h2>')
    found = check_site(tmp_path)
    assert len(found) == (problem is not None)
    assert all(line.startswith(f"a.html: {problem}") for line in found)
