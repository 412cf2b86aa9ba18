# SPDX-License-Identifier: Apache-2.0
"""Counts words and constructions in prose that readers of technical English stumble over. Pure functions.

Three numbers for a text:
- words: one person's words for things that have a name in the field ("nobody", "travels", "beside"), per 1,000 words;
- constructions, per 1,000 words: relative clauses without the thing that they describe ("what is left"), sentences without a verb
  ("Not while ..."), and double negations ("no ... but", "never ... without");
- width: lines of Markdown above 125 columns and cells of tables above 120 characters.
Quoted text is not prose: code blocks, spans of code, and error texts in quotation marks are left out."""
import re

LINE, CELL = 125, 120

WORDS = re.compile(
    r"\b(?:whoever|whom|nobody|somebody|everybody|anybody|told|hears?|heard|speaks?|says|said|let go|lets go|lets? of|gone|stood|stands|lies?|lay|"
    r"beside|as ever|one behind the other|on (?:its|their) way|is none|but for|so many|goes on|go on|went on|travels?|travelled|"
    r"who (?:is|was|has|waits|looks|reads|finds|uses|comes|asks|serves|wants|begins|leaves|sends|calls|joins))\b", re.I)

CONSTRUCTIONS = [
    # Rule 3: a relative clause names its thing.
    re.compile(r"\b(?:of|from|for|to|with|and|that|is|are|than|as|at|in|on|by) what (?:is|was|are|were|has|had|it|they|this|that|the|a|an|comes?)\b|"
               r"(?:^|[.;:] )What (?:is|was|are|were|has|had|it|they|a|the|this) [^.?]*[.;:]", re.I | re.M),
    # Rule 4: a sentence has a verb.
    re.compile(r"(?:^|[.;(] )(?:Not|Nor|Also not) (?:so|while|for|with|in|on|if|where|when|a|the|by|from|of|even|what|to)\b", re.M),
    re.compile(r"(?:^|[.;] )(?:The same|So|Also|Too|Twice|Never|Always|No|None|Of) [\w`-]+(?: [\w`-]+){0,2}[.;]", re.M),
    # Rule 7: no double negation.
    re.compile(r"\b(?:no|none|nothing|never) [\w`-]+(?: [\w`-]+){0,4} (?:but|unless|without)\b|\b(?:nothing|none|not|no one) (?:but|unless|without)\b", re.I),
]


def comments(text, marks=r"//+[!<]?|/\*+<?|^\s*\*(?!/)"):
    """The prose in the comments of a source, a line for each of its lines."""
    found = []
    for line in text.split("\n"):
        match = re.search(rf"(?:^|\s)({marks})(.*)", line)
        prose = match.group(2) if match and "SPDX" not in line and "http" not in line else ""
        found.append(re.sub(r"\*/.*", "", prose))
    return "\n".join(found)


def markdown(text):
    """The prose in a page, a line for each of its lines."""
    found, inside = [], False
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        found.append("" if inside or fence else line)
        inside ^= fence
    return "\n".join(found)


def unquoted(prose):
    """Without spans of code, error texts and addresses."""
    prose = re.sub(r"`[^`\n]*`", "`", prose)
    return re.sub(r'"[^"\n]*"|\]\([^)\s]*\)', '"', prose)


def prose_of(path, text):
    if path.endswith(".md"):
        return unquoted(markdown(text))
    if path.endswith((".py", ".sh", ".jl")):
        return unquoted(comments(text, r"#+"))
    return unquoted(comments(text))


def wide(text):
    """(line number, what) of each line and cell that is too wide."""
    for number, line in enumerate(markdown(text).split("\n"), 1):
        if line.lstrip().startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line):
                if len(cell.strip()) > CELL:
                    yield number, f"a cell of {len(cell.strip())} characters"
        elif len(line) > LINE and not line.startswith("[!["):  # a picture with its link cannot be broken
            yield number, f"a line of {len(line)} columns"


def length(text):
    """The words of a page, without its code blocks and the frames of its tables."""
    return sum(any(letter.isalnum() for letter in word) for word in markdown(text).split())


def constructions(prose):
    return [match for each in CONSTRUCTIONS for match in each.finditer(prose)]


def size(prose):
    return len(re.findall(r"[A-Za-z']+", prose))
