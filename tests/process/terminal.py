# SPDX-License-Identifier: Apache-2.0
"""terminal.py MODE PROGRAM ARGUMENTS...: runs a program as the foreground job of a new terminal. Modes:
  copy     everything that comes, as it comes; the program's exit code. OUT=FILE: its stdout is a file, OUT=|: a pipe
  screen   the rows that stand on the terminal in the end; the program's exit code
  STEPS    separated by |: "wait TEXT", "type TEXT", "stopped" (it has stopped, and is continued) and "hang" (the terminal goes away); the exit
           code as a line"""
import os
import pty
import re
import select
import signal
import sys

mode, program = sys.argv[1], sys.argv[2:]
pid, terminal = pty.fork()
if pid == 0:
    out = os.environ.get("OUT")
    if out:
        os.dup2(os.pipe()[1] if out == "|" else os.open(out, os.O_WRONLY | os.O_CREAT), 1)
    os.execv(program[0], program)


def read(limit=None):
    if limit is not None and not select.select([terminal], [], [], limit)[0]:
        sys.exit(f"nothing came for {limit} s")
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def rows_of(data):
    rows, at = [""], 0
    for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\r\n\x1b]", data.decode()):
        if token == "\r":
            at = 0
        elif token == "\n":
            rows.append("")
            at = 0
        elif token == "\x1b[K":
            rows[-1] = rows[-1][:at]
        elif token[0] != "\x1b":
            rows[-1] = rows[-1][:at] + token + rows[-1][at + 1:]
            at += 1
    return rows


def follow(steps):
    """The terminal is closed after "hang", and read to its end otherwise."""
    seen = b""
    for step in steps:
        verb, _, text = step.partition(" ")
        if verb == "wait":
            while text.encode() not in seen:
                data = read(20)
                seen += data
                if not data:
                    sys.exit("never saw " + text)
            seen = seen.partition(text.encode())[2]
        elif verb == "type":
            os.write(terminal, text.encode().decode("unicode_escape").encode())
        elif verb == "stopped":
            if not os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]):
                sys.exit("the program did not stop")
            os.kill(pid, signal.SIGCONT)
        elif verb == "hang":
            return os.close(terminal)
    while read(20):
        pass


if mode in ("copy", "screen"):
    data = b"".join(iter(read, b""))
    sys.stdout.buffer.write(data if mode == "copy" else ("\n".join(rows_of(data)).rstrip("\n") + "\n").encode())
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
follow(mode.split("|"))
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
