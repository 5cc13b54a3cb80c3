"""What a template may cost, and that what it gives is what Jinja gives."""

import threading
from multiprocessing import get_context

import pytest
from jinja2 import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tercet.data.files import template_process
from tercet.fewshot.prompts.templates import Template

ROW = {
    "text": "The cat, a <b>good</b> one,\nsat.",
    "words": ["b", "a", "c", "a"],
    "pairs": {"x": 1, "y": [2, 3]},
    "n": 7,
}

ENDLESS = {
    "power": "{{ 9**(9**9) }}",
    "power of a row": "{{ n**(n**(n**n)) }}",
    "square after square": "{% set ns = namespace(x=n) %}{% for i in range(40) %}{% set ns.x = ns.x "
    "* ns.x %}{% endfor %}",
    "repeated text": "{{ 'a' * 10**11 }}",
    "repeated list": "{{ ([0] * 10**11) | length }}",
    "joined texts": "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ "
    "ns.x %}{% endfor %}",
    "added texts": "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x + "
    "ns.x %}{% endfor %}",
    "lists of lists": "{% set ns = namespace(x=1) %}{% for i in range(60) %}{% set ns.x = [ns.x, "
    "ns.x] %}{% endfor %}{{ ns.x }}",
    "compared lists": "{% set ns = namespace(x=1, y=1) %}{% for i in range(60) %}{% set ns.x = "
    "[ns.x, ns.x] %}"
    "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "filtered loop": "{% for i in range(99999) if range(99999) | map('string') | list | length < 0 "
    "%}{% endfor %}",
    "recursive loop": "{% for i in [1] recursive %}{% if loop.depth < 5 %}{{ loop(range(99999)) "
    "}}{% endif %}{% endfor %}",
    "macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "captured text": "{% set x %}{% for i in range(99999) %}" + "long " * 2000 + "{% endfor %}{% endset %}",
    "center filter": "{{ text | center(10**11) }}",
    "center method": "{{ text.center(10**11) }}",
    "ljust of an attribute": "{{ (text | attr('ljust'))(10**11) }}",
    "ljust by name": "{{ text['ljust'](10**11) }}",
    "zfill": "{{ '1'.zfill(10**11) }}",
    "expandtabs": "{{ '\t'.expandtabs(10**9) }}",
    "indent filter": "{{ text | indent(10**11, true) }}",
    "format method": "{{ '{:>99999999999}'.format(1) }}",
    "nested format": "{{ '{:{}}'.format(1, 10**11) }}",
    "format filter": "{{ '%99999999999d' | format(1) }}",
    "percent": "{{ '%99999999999d' % 1 }}",
    "percent with a star": "{{ '%*d' % (10**9, 1) }}",
    "replace method": "{{ ('a' * 9999999).replace('a', 'b' * 99999) }}",
    "replace filter": "{{ ('a' * 9999999) | replace('', 'b' * 99999) }}",
    "join method": "{{ ('b' * 99999).join(['a'] * 99999) }}",
    "join filter": "{{ range(99999) | join('b' * 99999) }}",
    "join of long texts": "{{ (['b' * 99999] * 99999) | join }}",
    "map": "{{ range(99999) | map('string') | map('center', 99999) | list | length }}",
    "translate": "{{ ('a' * 99999).translate({97: 'b' * 99999}) }}",
    "sum of lists": "{{ ([[1]] * 9999999) | sum(start=[]) | length }}",
    "batch": "{{ [1] | batch(10**11, 0) | list | length }}",
    "slice": "{{ [1] | slice(10**11) | list | length }}",
    "round": "{{ 5 | round(10**9, 'ceil') }}",
    "tojson": "{{ pairs | tojson(indent=10**10) }}",
    "to_bytes": "{{ (5).to_bytes(10**11, 'big') }}",
    "wordwrap": "{{ ('a' * 30000000) | wordwrap(1) }}",
    "striptags": "{{ ('<b>' * 9999999) | striptags }}",
    "rfind": "{{ ('a' * 20000000).rfind('a' * 499999 + 'b' + 'a' * 499999) }}",
    "strip": "{{ ('a' * 20000000).strip('b' * 999999 + 'a') }}",
    "int": "{{ ('f' * 9999999) | int(base=16) }}",
}


@pytest.fixture
def hurried(monkeypatch):
    monkeypatch.setattr(template_process, "MOST_SECONDS", 0.2)


@pytest.mark.parametrize("name", ENDLESS)
def test_no_template_goes_on_without_end(name, hurried):
    told = (
        r"it takes more than 0\.2 seconds|it needs more than 512 MiB of memory|it makes more than 67,|Exceeds"
    )
    with pytest.raises(
        ValueError,
        match=rf"^task\.context = .* (is not a valid template|cannot be rendered) \(({told}).*\): correct",
    ):
        Template("task.context", ENDLESS[name])(ROW)


def test_the_bound_holds_in_other_threads_and_the_next_template_is_filled_in(hurried):
    problems = []

    def fill_in():
        try:
            Template("task.target", "9**(9**9)", is_expression=True)(ROW)
        except ValueError as error:
            problems.append(str(error))

    thread = threading.Thread(target=fill_in)
    thread.start()
    thread.join(60)
    assert len(problems) == 1
    assert "task.target = '9**(9**9)' is not a valid template (it takes more than" in problems[0]
    assert Template("task.target", "n + 1", is_expression=True)(ROW) == 8


def test_a_template_that_is_nested_too_deeply_is_no_template():
    with pytest.raises(ValueError, match=r"task\.context = .* is not a valid template \(.*\): correct it"):
        Template("task.context", "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}")


LEGAL = [
    "{{ text }} {{ words[0] }}, {{ words | join(', ') }}: {{ n * 3 + 2 ** 10 - 5 % 3 }}",
    "{% for word in words %}{{ loop.index }}/{{ loop.length }} {{ word }}{{ ', ' if not loop.last "
    "}}{% endfor %}",
    "{% for key, value in pairs.items() %}{{ key }}={{ value }};{% else %}none{% endfor %}",
    "{% for i in [1, 2] recursive %}{{ i }}{% if i == 1 %}{{ loop([3, 4]) }}{% endif %}{% endfor %}",
    "{% macro shown(word, end='.') %}{{ word }}{{ end }}{% endmacro %}{{ shown('a') }}{{ shown('b', "
    "end='!') }}",
    "{% set x = text ~ n ~ words %}{{ x | upper | trim }}{{ x.title().center(80) }}|{{ 'a' | center(9) }}",
    "{{ '%s is %05d' % ('n', n) }}{{ '%(a)s' | format(a=n) }}{{ '{:>8} {x[y][0]}'.format(n, x=pairs) }}",
    "{{ text.replace('cat', 'dog') | replace('a', 'b') | indent(2) }}{{ text | wordwrap(8) | striptags }}",
    "{{ words | sort | unique | list }}{{ words | map('upper') | join }}{{ words | select('eq', "
    "'a') | list }}",
    "{{ [1, 2, 3] | sum }}{{ 2.345 | round(2) }}{{ range(5) | batch(2, 0) | list }}{{ pairs | "
    "tojson(indent=1) }}",
    "{{ text.split() | length }}{{ text.encode() | length }}{{ (words + ['d']) | reverse | first "
    "}}{{ '=' * 20 }}",
    "{% set ns = namespace(found=0) %}{% for w in words if w == 'a' %}{% set ns.found = ns.found + "
    "1 %}{% endfor %}"
    "{{ ns.found }}{{ {'a': [n, (1, 2)]} }}{{ row.text if 'cat' in text else '' }}{{ text[4:7] }}",
]


@pytest.mark.parametrize("source", LEGAL)
def test_templates_within_the_bound_give_what_jinja_gives(source):
    jinja = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
    assert Template("task.context", source)(ROW) == jinja.from_string(source).render({**ROW, "row": ROW})


def test_an_expression_may_give_what_a_filter_gives_one_by_one():
    assert Template("task.choices", "words | map('upper')", is_expression=True)(ROW) == ["B", "A", "C", "A"]


def test_a_forked_process_fills_in_by_a_process_of_its_own():
    template = Template("task.context", "{{ n }} cats")
    assert template(ROW) == "7 cats"
    with get_context("fork").Pool(2) as pool:
        assert pool.map(template, [{**ROW, "n": n} for n in range(40)]) == [f"{n} cats" for n in range(40)]
    assert template(ROW) == "7 cats"


def test_a_text_of_millions_of_characters_is_filled_in():
    text = "word " * 2_000_000
    assert Template("task.text", "{{ text | trim }}")({"text": text}) == text.strip()


@pytest.mark.parametrize(
    ("source", "is_expression"), [("{{ text }} .", False), ("text", True), ("[text]", True)]
)
def test_what_a_tokenizer_cannot_read_is_no_text(source, is_expression):
    template = Template("task.context", source, is_expression=is_expression)
    with pytest.raises(ValueError, match=r"it has '\\ud800', which is no character"):
        template({"text": "a \ud800"})
    assert template({"text": "a \N{GRINNING FACE}"})
