"""Lines of TOML keys, against texts whose lines are known by construction."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from homing.config.lines import key_lines, line_of

SAMPLE = '''\
# a comment with [brackets] and = signs
top = 1

[service]   # trailing
name = "a # not a comment"
peers = [
  "x = 1",  # [nested
  ["[deep]"],
]
text = """
[not.a.table]
key = 'nor a key'
"""
literal = \'\'\'
[nor] this
\'\'\'
"quoted key" = 1
[push.'odd.name']
a.b = {c = 1, d = "}"}
[[array]]
x = 1
'''


def test_every_form_of_toml() -> None:
    tomllib.loads(SAMPLE)  # it is valid
    assert key_lines(SAMPLE) == {
        ("top",): 2,
        ("service",): 4,
        ("service", "name"): 5,
        ("service", "peers"): 6,
        ("service", "text"): 10,
        ("service", "literal"): 14,
        ("service", "quoted key"): 17,
        ("push", "odd.name"): 18,
        ("push", "odd.name", "a"): 19,
        ("push", "odd.name", "a", "b"): 19,
        ("array",): 20,
        ("array", "x"): 21,
    }


def test_a_key_without_a_line_stands_on_its_parents() -> None:
    lines = key_lines("\n[a]\nb = {c = 1}\n")
    assert line_of(lines, ("a", "b", "c")) == 3
    assert line_of(lines, ("z",)) is None


VALUES = st.sampled_from(
    [
        "1",
        "-2.5",
        "true",
        '"x"',
        "'y'",
        '"[\\"{"',
        "[1,\n 2]",
        '"""\n]\n"""',
        "{q = [1]}",
        "1979-05-27",
    ]
)
KEYS = st.sampled_from(["a", "b-c", "d_1", '"e f"', "'g.h'", '"i\\"j"'])
FILLER = st.sampled_from(["", "\n", "# = [ {\n", "   \n\t\n"])


@given(st.lists(st.tuples(FILLER, st.booleans(), KEYS, VALUES), max_size=12))
def test_every_key_that_tomllib_finds_has_the_line_it_was_written_on(
    parts: list[tuple[str, bool, str, str]],
) -> None:
    text = ""
    table: tuple[str, ...] = ()
    expected: dict[tuple[str, ...], int] = {}
    for number, (filler, is_table, key, value) in enumerate(parts):
        text += filler
        line = text.count("\n") + 1
        if is_table:
            table = (f"t{number}",)
            text += f"[t{number}] # {value!r}\n"
            expected[table] = line
        else:
            name = f"k{number}"
            text += f"  {name}.{key} = {value}\n"
            expected[(*table, name)] = line
            expected[(*table, name, str(next(iter(tomllib.loads(f"{key} = 0")))))] = line
    tomllib.loads(text)
    assert key_lines(text) == expected


@given(st.text(alphabet="[]{}='\"\\#.\n ab1", max_size=60))
def test_broken_texts_end_without_an_exception(text: str) -> None:
    """Callers ask only for valid texts; still nothing may hang or raise something odd."""
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    assert all(line >= 1 for line in key_lines(text).values())
