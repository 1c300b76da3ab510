"""Which files a shell command reads, and which it may have changed. A reading of common commands, not a shell: in doubt a file has changed."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass

_LONGEST = 4_000
"""Characters of a command that are parsed into words; of the rest only names of files are looked for."""
_READERS = frozenset(("cat", "head", "tail", "nl", "less", "more", "bat", "Get-Content"))
_LOOKERS = _READERS | {
    *("cd", "ls", "ll", "dir", "pwd", "echo", "printf", "grep", "egrep", "fgrep", "rg", "ag", "wc", "stat", "file", "du", "tree", "diff", "cmp"),
    *("sort", "uniq", "cut", "tr", "awk", "jq", "column", "md5sum", "sha256sum", "which", "whoami", "date", "sleep", "true", "test", "find", "sed"),
    *("pytest", "mypy", "pyright", "tsc", "flake8", "pylint", "export", "set", "source", "exit", "wait", "[", "[[", ":", "false", "read", "type"),
    *("ps", "df", "id", "uname", "env", "printenv", "basename", "dirname", "realpath", "readlink", "xxd", "od", "hexdump", "strings", "sha1sum"),
    *("cksum", "comm", "paste", "join", "fold", "rev", "tac", "seq", "yq", "kill", "pkill", "lsof", "ping", "nproc", "free", "history", "man"),
}
"""Commands that change no file unless their arguments say so."""
_LOOKER_PAIRS = frozenset(
    (
        *(
            ("git", verb)
            for verb in ("status", "diff", "log", "show", "blame", "branch", "grep", "ls-files", "rev-parse", "add", "commit", "push", "fetch")
        ),
        *(("ruff", "check"), ("npm", "test"), ("go", "test"), ("go", "vet"), ("cargo", "test"), ("cargo", "check"), ("make", "test")),
    )
)
_LOOKER_MODULES = frozenset(("pytest", "unittest", "mypy", "flake8", "pylint"))
_NAMES_WHAT_IT_CHANGES = (_LOOKERS - {"find"}) | {
    *("cp", "mv", "rm", "rmdir", "mkdir", "touch", "tee", "chmod", "chown", "ln", "dd", "install", "truncate", "ed", "gawk", "curl", "wget"),
    *("pip", "pip3", "apt", "apt-get", "brew", "conda"),
}
"""Commands that, when they act, change no file of the work but those they name. Of any other (a script, a formatter, a build) nobody knows."""
_PROGRAM_TEXT = frozenset(("-", "-c"))
_ACTS = re.compile(r"(?:^|\s)(?:--(?:fix|write|in-?place|output)\b|-i\S*(?:\s|$)|-exec\b|-execdir\b|-delete\b|-fprint)|\binplace\b")
# The shell module of the standard library reads letter by letter, a hundred times slower; an open quote ends at the next blank here.
_TOKEN = re.compile(
    r"""(?P<redirect>&>>?|[<>]+[&|]?)|(?P<end>[;&|()\n]+)|(?P<word>(?:[^\s;&|<>()'"\\]++|'[^']*'|"(?:[^"\\]|\\.)*+"|\\.|['"\\])++)""", re.DOTALL
)
_QUOTES = re.compile(r"['\"\\]")
_QUOTED = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*+)"|\\(.)|(['"\\])""", re.DOTALL)
_HEREDOC = re.compile(r"<<-?[ \t]{0,8}(['\"]?)(\w{1,80})\1")
_FILE_LIKE = re.compile(r"[\w.@+-]+")
_SED_RANGE = re.compile(r"\d+(?:,(?:\d+|\$))?p")


@dataclass(frozen=True, slots=True)
class Shell:
    """What a command line shows of files, and what it may change."""

    reads: tuple[str, ...] = ()
    whole: bool = False
    """Whether the output is one file, entire, and nothing else."""
    part: str = ""
    """How a part of a file was asked for; `""` where none was."""
    changes: frozenset[str] = frozenset()
    """Words, among them the base names of files, of the commands that may change something."""
    reaches_all: bool = False
    """Whether it may change files that it does not name."""


def shell_of(command: str) -> Shell:
    """Read a command line once. Linear in its length."""
    line, scripts = _without_heredocs(command)
    commands = _commands(line[:_LONGEST])
    acting = [words for words in commands if not _looks_only(words)]
    reads, part = _shown(commands)
    alone = len([words for words in commands if words[0] != "cd"]) == 1 and len(reads) == 1 and not part
    texts = [" ".join(word for words in acting for word in words), line[_LONGEST:], *scripts]
    changes = frozenset(name for text in texts for name in names_in(text))
    return Shell(reads, alone, part, changes, any(_reaches_all(words) for words in acting))


def _shown(commands: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], str]:
    """The files that commands print, and how the first that wants a part asks for it."""
    reads: list[str] = []
    part = folder = ""
    for words in commands:
        if words[0] == "cd":
            folder = posixpath.join(folder, words[1] if len(words) > 1 else "~")
            continue
        paths, asked = _printed(words)
        reads += (posixpath.join(folder, path) for path in paths)
        part = part or asked
    return tuple(reads), part


def names_in(text: str) -> set[str]:
    """Everything in a text that could be the base name of a file."""
    return set(_FILE_LIKE.findall(text))


def _looks_only(words: Sequence[str]) -> bool:
    if _redirects(words):
        return False
    if words[0].startswith("python"):
        return words[1:2] == ["-m"] and words[2:3] != [] and words[2] in _LOOKER_MODULES
    if words[0] in _LOOKERS or tuple(words[:2]) in _LOOKER_PAIRS:
        # `grep -i` and `ls -i` only look; `sed -i` does not.
        options = " ".join(words[1:])
        return not _ACTS.search(options) or words[0] in ("grep", "egrep", "fgrep", "rg", "ag", "ls", "diff", "uniq", "tree")
    return False


def _reaches_all(words: Sequence[str]) -> bool:
    """Whether an acting command may change files that it does not name, by what it is or by a pattern in its words."""
    # A program text names its files, a script does not.
    text = words[0].startswith("python") and (len(words) == 1 or words[1] in _PROGRAM_TEXT)
    unknown = not text and words[0] not in _NAMES_WHAT_IT_CHANGES
    return unknown or any(char in " ".join(words) for char in "*$`")


def _printed(words: Sequence[str]) -> tuple[list[str], str]:
    """Paths a simple command prints, and how it asked for a part of them."""
    if words[0] not in _READERS and words[0] != "sed":
        return [], ""
    if _redirects(words):
        return [], ""
    plain = [word for word in words[1:] if not word.startswith("-")]
    if words[0] == "sed":
        excerpt = "-n" in words and len(plain) == 2 and _SED_RANGE.fullmatch(plain[0])
        return ([plain[1]], f"lines {plain[0][:-1]}") if excerpt else ([], "")
    options = [word for word in words[1:] if word.startswith("-") or word.isdigit()]
    # Without an option head and tail show a part, too. A pattern stands for files that cannot be told from here.
    part = " ".join([words[0], *options]) if words[0] in ("head", "tail") else ""
    return [word for word in plain if not word.isdigit() and not any(char in word for char in "<*?$`{")], part


def _redirects(words: Sequence[str]) -> bool:
    """Whether output goes into a file."""
    return any(">" in word and word != ">&" and set(word) <= set("<>&|") for word in words)


def _commands(line: str) -> list[list[str]]:
    """The simple commands of a line, each as its words; a redirection is a word, too."""
    commands: list[list[str]] = [[]]
    for token in _TOKEN.finditer(line):
        if token.lastgroup == "end":
            commands.append([])
        else:
            commands[-1].append(_QUOTED.sub(_unquoted, token[0]) if _QUOTES.search(token[0]) else token[0])
    return [simple for words in commands if (simple := _without_noise(words))]


def _unquoted(quoted: re.Match[str]) -> str:
    single, double, escaped, lone = quoted.groups()
    if double is not None:
        return re.sub(r"\\([\"\\$`\n])", r"\1", double)
    return single if single is not None else escaped if escaped is not None else lone


def _without_noise(words: Sequence[str]) -> list[str]:
    """Words but variable settings, `sudo`, and redirections that go nowhere."""
    kept: list[str] = []
    for word in words:
        if not kept and (word in ("sudo", "time", "env", "command", "nohup") or re.fullmatch(r"\w+=.*", word, re.DOTALL)):
            continue
        if word == "/dev/null" and kept and set(kept[-1]) <= set("<>&"):
            kept.pop()
            if kept and kept[-1] in ("1", "2"):
                kept.pop()
        elif not kept:
            kept.append(posixpath.basename(word) or word)
        else:
            kept.append(word)
    return kept


def _without_heredocs(command: str) -> tuple[str, list[str]]:
    """The command line without its here-documents, and those that are scripts and not text for `cat` or `tee`."""
    if "<<" not in command:
        return command, []
    line: list[str] = []
    scripts: list[str] = []
    tag = ""
    is_script = False
    for row in command.split("\n"):
        if tag:
            if row.strip() == tag:
                tag = ""
            elif is_script:
                scripts.append(row)
            continue
        opened = _HEREDOC.search(row)
        if opened:
            tag = opened[2]
            is_script = re.search(r"\b(?:cat|tee)\b", row) is None
        line.append(row[: opened.start()] + row[opened.end() :] if opened else row)
    return "\n".join(line), scripts
