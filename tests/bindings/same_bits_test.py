# SPDX-License-Identifier: Apache-2.0
"""The program of README.md gives the same bits in every language, alone and as ranks of one group."""
import os
import re
import subprocess
import sys
import tempfile

BUILD = os.environ["DDP_BUILD_DIR"]
HERE = os.path.dirname(os.path.abspath(__file__))
LINE = re.compile(r"rank (\d+) of (\d+): (parameters \w{16} averages \w{16} loss \w{16})$")
problems = []


def golden():
    with open(os.path.join(HERE, "same_bits.txt"), encoding="utf-8") as file:
        lines = [line.split(":", 1) for line in file if line.strip() and not line.startswith("#")]
    return {int(size): bits.strip() for size, bits in lines}


def languages():
    """name -> command of the program in that language, C first; the others as their CMakeLists.txt wrote them down."""
    found = {"c": [os.path.join(BUILD, "tests/bindings/same_bits")]}
    listing = os.path.join(BUILD, "bindings/same_bits.txt")
    if os.path.exists(listing):
        with open(listing, encoding="utf-8") as file:
            for line in filter(None, file.read().splitlines()):
                name, *command = line.split("|")
                found[name] = command
    return found


def run(what, commands, parts=0):
    """One rank for each command; of the batch each has one part, or all ranks together `parts`. Returns what all of them printed, if it is the
    same."""
    size = len(commands)
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "rank.sh")
        with open(script, "w", encoding="utf-8") as file:
            file.write('case "$RANK" in\n')
            for rank, command in enumerate(commands):
                file.write(f"  {rank}) exec " + " ".join("'" + word.replace("'", "'\\''") + "'" for word in command) + " ;;\n")
            file.write("esac\n")
        ddprun = os.path.join(BUILD, "bin/ddprun")
        done = subprocess.run([ddprun, "--no-prefix", "-n", str(size), "sh", script], capture_output=True, text=True, timeout=90,
                              check=False, env={**os.environ, "SAME_BITS_PARTS": str(parts)})
    bits = {}
    for line in done.stdout.splitlines():
        match = LINE.match(line)
        if match and int(match.group(2)) == size:
            bits[int(match.group(1))] = match.group(3)
    if done.returncode or sorted(bits) != list(range(size)):
        problems.append(f"{what}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return None
    if len(set(bits.values())) != 1:
        problems.append(f"{what}: the ranks differ: {bits}")
        return None
    return bits[0]


def expect(what, commands, wanted, parts=0):
    found = run(what, commands, parts)
    print(f"{what}: {found}")
    if found is not None and found != wanted:
        problems.append(f"{what}: {found}, wanted {wanted}")


def mixtures(names):
    """Every language as rank 0 once, all of them in one group; two of them at least."""
    if len(names) > 1:
        for turn in range(len(names)):
            yield names[turn:] + names[:turn]


def has_fma():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return re.search(r"^flags.*\bfma\b", file.read(), re.M) is not None
    except OSError:
        return False


def main():
    wanted, programs = golden(), languages()
    for name, command in programs.items():
        for size in (1, 2, 3):
            expect(f"{name} on {size}", [command] * size, wanted[size])
    for name, command in programs.items():  # three parts have the bits of three ranks
        for size in (1, 2):
            expect(f"{name} on {size} with 3 parts", [command] * size, wanted[3], 3)
        if name != "c":
            expect(f"c+{name} with 3 parts", [programs["c"], command], wanted[3], 3)
    for names in mixtures(list(programs)):
        expect("+".join(names), [programs[name] for name in names], wanted[len(names)])
    control = os.path.join(BUILD, "tests/bindings/same_bits_fused")
    if os.path.exists(control) and has_fma() and run("control", [[control]] * 2) == wanted[2]:
        problems.append("The program with fused multiply-add gives the same bits: this test would not see a difference.")
    print("\n".join(problems) if problems else f"{', '.join(programs)}: the same bits")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
