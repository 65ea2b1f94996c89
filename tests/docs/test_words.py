"""One word for each thing: code, comments, docstrings, log texts, SQL and test names use the glossary's words, and not
those that they replaced."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs import markdown

ROOT = markdown.REPOSITORY

FOLDERS = (
    "outbox_core/relay",
    "outbox_core/runtime",
    "outbox_core/stores",
    "outbox_core/adapter",
    "outbox_adapters",
    "tests/unit/relay",
    "tests/unit/runtime",
)
"""Where the words are checked."""

NOT_YET = (
    "outbox_core/stores/postgres/ddl/",
    "outbox_core/stores/postgres/doctor/",
    "outbox_core/stores/postgres/migrations/",
    "outbox_core/stores/postgres/readiness.py",
)
"""Texts that users see, in errors and in what doctor and `outbox schema print` show: they change with the rest of
those."""

NOT_YET_NAMES = ("Look", "_AWAY", "away", "look")
"""Public names of the status of a table, and what is named after one. To be emptied when those are renamed."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Words to find, in prose or in names, and what to say instead.

    All are regular expressions. Names are matched as words in lower case: ``_giveBack`` is "give back". A rule holds in
    files whose path has ``within``.
    """

    instead: str
    prose: str | None = None
    names: str | None = None
    within: str = ""


def both(words: str, instead: str) -> Rule:
    """Words that are wrong wherever they are."""
    return Rule(instead, rf"\b(?:{words})\b", rf"\b(?:{words})\b")


_NO_VERB = "blame|insist|a|an|all|any|each|every|its|one|that|the|their|this|those|what|which|you|your"
"""After "is to": ordinary English."""

_SWEEP = r"\b(?:sweeps?|sweeping|swept)\b"

RULES = (
    Rule(
        "destination",
        r"\bleaf\b|\b(?:all|both|its|many|of|several|the|these|those|two|three)\s+leaves\b",
        r"\bleaf\b|^leaves$",
    ),
    both("lanes?", "table pipeline"),
    Rule(
        "in flight",
        r"\bin\s+hand\b|\b(?:a|its|relay's|the)\s+hand\b(?!-)",
        r"\bin hand\b|^hand$",
    ),
    both("outlets?", "dispatch pool"),
    Rule("deferred, defer", r"\baside\b(?!\s+from)", r"\baside\b"),
    Rule(
        "unordered, or in a step of its own",
        r"\b(?:set|sets|setting)\s+(?:\w+\s+)?apart\b",
        r"(?<!tell )(?<!told )\bapart\b",
    ),
    both("portions?", "limit"),
    Rule("watermark", r"\bfloors?\b(?!\s*\()", r"\bfloors?\b"),
    Rule("rescan", _SWEEP, _SWEEP, within=r"\b(?:relay|runtime)/"),  # the cleaner, elsewhere, may sweep
    both("unknown claims?", "lost claim"),
    both("standstill", "event loop watchdog"),
    both("endings", "supervision"),
    both("chores?", "maintenance"),
    both("audience", "observers"),
    both("duties", "run"),
    Rule(
        "unavailable",
        r"\b(?:is|are|was|were|be|been|being)\s+away\b",
        r"\b(?:is|are|was|were|be) away\b|^away$",
    ),
    Rule("blocked", r"\bshut\b(?!\s+down)", r"\bshut\b(?! down)"),
    Rule("half-open trial", r"\bgo(?:es)?\s+ahead\b", r"\bgoes ahead\b"),
    Rule("failed trial", r"\bin\s+vain\b", r"\bin vain\b"),
    Rule("notified, reported; broker_full", r"\btold\b(?!\s+apart)", r"\btold\b(?! apart)"),
    Rule(
        "check",
        r"\b(?:a|another|each|every|first|last|next|no|one|second|the)\s+look\b(?!\s+like)|\b(?:two\s+looks|looks\s+are)\b",
        r"\b(?:last|next) looks?\b|\blooks? (?:every|seconds|sql)\b|^looks?$",
    ),
    both("pok(?:e|es|ed|ing)", "wake"),
    both("bur(?:y|ies|ied|ying)", "dead-letter"),
    Rule(
        "release, return",
        r"\b(?:give|gives|given|giving|gave)(?:\s+(?:a|an|it|its|them|these|those|rows?|slots?|the|all|what))*\s+back\b",
        r"\b(?:give|gives|given|giving|gave)(?: \w+)? back\b",
    ),
    Rule(
        "reschedule",
        r"\b(?:put|puts|putting)(?:\s+(?:it|them|a|the|rows?|messages?))*\s+off\b",
        r"\bput off\b",
    ),
    Rule(
        "abandoned", r"\b(?:left|leave|leaves|leaving)[\s-]+behind\b(?!\s+(?:it|them)\b)", r"\bleft behind\b"
    ),
    both("deaf", "abandoned; ignores its cancellation"),
    both("mend(?:s|ed|ing)?", "fix"),
    both("dear(?:er|est)?", "expensive"),
    Rule("N, or the name of the argument", r"\bso\s+many\b(?!\s+that)"),
    Rule(
        "the part: the relay, the caller, another session",
        r"\b(?:nobody|somebody|anybody|whoever|whomever)\b",
        r"\b(?:nobody|somebody|anybody|whoever)\b",
    ),
    Rule("must, should, will", rf"\b(?:is|are|was|were)\s+to\s+(?!(?:{_NO_VERB})\b)[a-z]\w*"),
    Rule(
        "claim keys, request",
        r"\bfollow(?:s|ed|ing)?\s+(?:a|an|the|each|every|held|these|given|its|all|such)?\s*keys?\b"
        r"|\bkeys?\s+(?:\w+\s+){0,4}?followed\b",
        r"\bfollow(?:s|ed|ing)? keys?\b|\bmax followed\b",
    ),
    Rule("WireMessage, render", names=r"^placed$"),
)

EXCEPTIONS = {
    (
        "outbox_core/relay/dispatching/destinations.py",
        "leaf_of",
    ): "the public name of a function in routes.py",
}
"""What stays, by file and text, with the reason."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A word that was replaced, and where it is."""

    path: str
    line: int
    text: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text!r}; say: {self.instead}"


def hits(path: str, source: str) -> list[Hit]:
    """The replaced words of a file, in its name and in its text."""
    rules = [rule for rule in RULES if re.search(rule.within, path)]
    named = [Hit(path, 1, text, instead) for text, instead in in_name(Path(path).stem, rules)]
    parts = python_parts(source) if path.endswith(".py") else [(1, source, False)]
    found = named + [
        Hit(path, line + offset, text, instead)
        for line, part, is_name in parts
        for offset, text, instead in (
            [(0, *each) for each in in_name(part, rules)] if is_name else in_prose(part, rules)
        )
    ]
    return [hit for hit in dict.fromkeys(found) if (path, hit.text) not in EXCEPTIONS]


def python_parts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Names, and prose: strings and comments, those of adjacent lines together. Each with its line, and true if it is a
    name."""
    comments: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string, True
        elif token.type == tokenize.COMMENT:
            comments.append(token)
        elif token.type == tokenize.STRING or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
            yield token.start[0], token.string, False
    block: list[str] = []
    for token, following in pairwise([*comments, None]):
        if token is None:
            break
        block.append(token.string.lstrip("# "))
        if following is None or following.start[0] != token.start[0] + 1:
            yield token.start[0] - len(block) + 1, "\n".join(block), False
            block = []


def in_prose(text: str, rules: Sequence[Rule]) -> Iterator[tuple[int, str, str]]:
    """Replaced words, each with how many lines into the text it is, and what to say instead."""
    for rule in rules:
        if rule.prose is not None:
            for match in re.finditer(rule.prose, text, re.IGNORECASE):
                yield text.count("\n", 0, match.start()), " ".join(match[0].split()), rule.instead
    for match in re.finditer(r"\b\w+_\w+\b", text):  # names that prose quotes
        for name, instead in in_name(match[0], rules):
            yield text.count("\n", 0, match.start()), name, instead


def in_name(name: str, rules: Sequence[Rule]) -> Iterator[tuple[str, str]]:
    """The name, if it has replaced words, with what to say instead."""
    if name in NOT_YET_NAMES:
        return
    words = " ".join(re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)).lower()
    for rule in rules:
        if rule.names is not None and re.search(rule.names, words):
            yield name, rule.instead


def files(folder: str) -> list[Path]:
    """Python and SQL files of a folder, if there is one."""
    found = [path for kind in ("*.py", "*.sql") for path in (ROOT / folder).rglob(kind)]
    return sorted(
        path
        for path in found
        if not {"build", "dist", ".venv"}.intersection(path.parts)
        and not path.relative_to(ROOT).as_posix().startswith(NOT_YET)
    )


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_uses_the_words_of_the_glossary(folder: str) -> None:
    found = [
        hit
        for path in files(folder)
        for hit in hits(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n" + "\n".join(map(str, found))


@pytest.mark.parametrize("folder", ["outbox_core/relay", "outbox_core/runtime"])
def test_docstrings_begin_with_a_verb_or_a_noun(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files(folder)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.match(r'\s*"""(?:Of|Whether|What)\b', line)
    ]
    assert not found, "\n" + "\n".join(found)


def test_exceptions_are_still_needed() -> None:
    for path, text in EXCEPTIONS:
        assert text in (ROOT / path).read_text(encoding="utf-8"), (path, text)


def test_terms_of_the_glossary_are_sorted_and_there_once() -> None:
    page = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| (?!term |---)([^|]+?) \|", page, re.MULTILINE)
    assert len(terms) > 50
    assert terms == sorted(set(terms))


@pytest.mark.parametrize(
    ("source", "text", "line"),
    [
        ("x = 1\n# a row\n# in\n# hand\n", "in hand", 3),
        ('"""Text.\n\nRows are given back.\n"""\n', "given back", 3),
        ("def test_rows_are_set_aside() -> None: ...\n", "test_rows_are_set_aside", 1),
        ("class Leaf: ...\n", "Leaf", 1),
        ("leaves = 1\n", "leaves", 1),
        ('warn("%s is away since", name)\n', "is away", 1),
        ('warn(f"{name} is away since")\n', "is away", 1),
        ("_NEXT_LOOK = 1\n", "_NEXT_LOOK", 1),
        ("# When a held key may be followed.\n", "key may be followed", 1),
        ("# It is to be written.\n", "is to be", 1),
        ("# See `in_vain_since`.\n", "in_vain_since", 1),
    ],
)
def test_replaced_words_are_found(source: str, text: str, line: int) -> None:
    assert [(hit.text, hit.line) for hit in hits("a.py", source)] == [(text, line)]


def test_replaced_words_are_found_in_sql_and_in_names_of_files() -> None:
    assert [str(hit) for hit in hits("relay/sweep.sql", "SELECT 1\n-- whoever has it\n")] == [
        "relay/sweep.sql:1: 'sweep'; say: rescan",
        "relay/sweep.sql:2: 'whoever'; say: the part: the relay, the caller, another session",
    ]


def test_ordinary_english_is_not_found() -> None:
    text = """
# Look for rows that look like others, and follow the rules: a key follows another. Reach the end of a place, tell why.
# Each leaves room for the others, and the table leaves the trial to another. By hand; on the other hand; hand it over.
# Who is to blame? Nothing tells the two apart, they cannot be told apart, apart from that. What is taken away goes
# back, and is put back in place. To cancel again is to insist. It is as close as it is to the others. Shut down in
# order. The first looks fine, aside from that. It takes so many that none is left behind it. One is
# cut off. Give it a slot.
look_up = follow = place = tell = reach = leave = shutdown = hand_over = gives_way = None
"""
    found = list(map(str, hits("relay/a.py", text)))
    assert found == []
    assert hits("stores/a.py", "# The cleaner sweeps.") == []
