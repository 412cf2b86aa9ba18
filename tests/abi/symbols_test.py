# SPDX-License-Identifier: Apache-2.0
"""The address of every declared function can be taken from C, and from C++ without exceptions and type information: what the
headers promise is what a program can link."""
import tempfile

from common import build, declarations, run, tree

names = [function.name for function in declarations.load().functions]
table = ",\n".join(f"    (function)&{name}" for name in names)
SOURCE = f"""#include <ddp/experimental.h>
#include <stdio.h>
typedef void (*function)(void);
int main(void) {{
  const function all[] = {{
{table}}};
  int found = 0;
  for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++) found += all[i] != 0;
  if (ddp_version() != DDP_VERSION) return 1;
  printf("%d", found);
  return 0;
}}
"""
problems = []
with tempfile.TemporaryDirectory() as work:
    for language, flags in (("c", ["-std=c99"]), ("cpp", ["-std=c++11", "-fno-exceptions", "-fno-rtti"])):
        found = run([build(work, "symbols_" + language, SOURCE, language=language, flags=flags)])
        if int(found) != len(names):
            problems.append(f"{language}: {found} of {len(names)} functions have an address")
tree.verdict(problems, f"{len(names)} functions from C and C++")
