# SPDX-License-Identifier: Apache-2.0
"""Each public function tells what it does, its parameters, whether it is local or collective, its errors and since when it exists."""
import re

import declarations
import tree

# Parameters that mean the same in every function and are explained once, in types.h and include/API.md.
VOCABULARY = {"group", "model", "optimizer", "ema", "outer", "state", "sampler", "options", "struct_size", "stream", "index", "user_data",
              "tensor", "status", "key", "path", "fn", "mode", "op"}

api = declarations.load()
problems = []


def check(function):
    def bad(text):
        problems.append(f"{function.header}:{function.line}: {function.name}: {text}")

    comment = function.comment
    if not comment:
        bad("has no comment")
        return
    borrowed = re.search(r"\bAs ddp_\w+|\bas in ddp_\w+|Write the defaults", comment)
    if not re.search(r"\bSince \d+\.\d+", comment):
        bad("does not say since which version")
    if not re.search(r"\b([Ll]ocal|[Cc]ollective)\b", comment) and not borrowed:
        bad("does not say whether it is local or collective")
    if function.returns == "ddp_status" and not re.search(r"\b[Ee]rrors\b|\bfirst cause\b", comment) and not borrowed:
        bad("does not name its errors")
    documented = re.findall(r"@param\s+(\w+)", comment)
    names = [parameter.name for parameter in function.parameters]
    for name in documented:
        if name not in names:
            bad(f"explains the parameter {name}, which it does not have")
    if [name for name in names if name in documented] != documented:
        bad("explains its parameters in another order than it takes them")
    for name in names:
        plain = re.sub(r"^out_", "", name)
        if function.name.endswith(f"get_{plain}") or function.name.endswith(f"_{plain}"):
            continue  # ddp_model_get_stats gives the stats
        if name not in documented and name not in VOCABULARY and plain not in VOCABULARY and not borrowed:
            if not re.search(rf"\b{plain.split('_')[0]}|\b{plain.replace('_', ' ')}", comment, re.I):
                bad(f"does not explain {name}")


for each in api.functions:
    check(each)
for struct in api.structs + api.enums:
    if isinstance(struct, declarations.Struct) and not re.search(r"Since \d+\.\d+", struct.comment):
        problems.append(f"{struct.header}:{struct.line}: {struct.name} does not say since which version")
tree.verdict(problems, f"{len(api.functions)} public functions")
