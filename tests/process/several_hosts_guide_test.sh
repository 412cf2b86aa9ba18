# SPDX-License-Identifier: Apache-2.0
# include/SEVERAL_HOSTS.md followed word by word: each of its sections in two network namespaces that are called a and b, with an sshd in each.
# Also: the errors that include/ERROR_TEXTS.md explains are those of the code, and each program can read the page's example files.
. "$DDP_SOURCE_DIR/tests/process/sshd_support.sh"
guide=$DDP_SOURCE_DIR/include/SEVERAL_HOSTS.md

# What "ssh", "ddprun" and "./train" are on these hosts.
mkdir "$work/bin" "$work/job"
printf '#!/bin/sh\nexec %s -F %s "$@"\n' "$(command -v ssh)" "$work/config" >"$work/bin/ssh"
printf '#!/bin/sh\nexec %s --epochs 2 "$@"\n' "$worker" >"$work/job/train"
ln -s "$ddprun" "$work/bin/ddprun"
chmod +x "$work/bin/ssh" "$work/job/train"

blocks() { # title of a section, host: its commands for this host
  awk -v title="## $1" -v host="# on $2" '
    /^## / { inside = $0 == title }
    /^```/ { code = !code && inside; chosen = 0; next }
    code && $0 == host { chosen = 1; next }
    code && chosen { print }' "$guide"
}
follow() { # title: both hosts at once
  local title=$1 host name code=0 numbers=()
  for host in 1 2; do
    name=$(echo ab | cut -c$host)
    blocks "$title" "$name" >"$work/$name.sh"
    [ -s "$work/$name.sh" ] || continue
    # Where ssh is used, sshd tells the hosts apart.
    mine=(DDP_TEST_HOST="$host")
    if grep -q '^ssh ' "$work/$name.sh"; then mine=(-u DDP_TEST_HOST); fi
    (cd "$work/job" && PATH="$work/bin:$PATH" timeout 60 ip netns exec "$id-$host" env "${mine[@]}" sh -eu "$work/$name.sh" >"$work/rank-$name" 2>&1) &
    numbers+=($!)
    [ "$host" = 2 ] || within 5 eval '! grep -q "openssl" $work/a.sh || [ -s $work/job/token ]'
  done
  [ "${#numbers[@]}" -gt 0 ] || code=1
  for number in "${numbers[@]}"; do wait "$number" || code=1; done
  return "$code"
}
trained() { # ranks
  grep -q 'all equal' "$work/rank-a" && grep -q "^\(\[0\] \)\?$1 ranks, " "$work/rank-a"
}
check "from one host" follow "ddprun, from one host"
check "four ranks train" trained 4
check "by hand" follow "ddprun, by hand on each host"
check "four ranks train" trained 4
check "in plain shells" follow "Plain shells"
check "two ranks train" trained 2

# Errors that the pages explain are sentences of ours: each quoted piece of the first cells.
explained() {
  local text bad=0
  while IFS= read -r text; do
    grep -rqF -- "$text" "$DDP_SOURCE_DIR/src" || {
      echo "no error says: $text"
      bad=1
    }
  done < <(awk -F'|' '/^\| `/ { n = split($2, part, "`"); for (i = 2; i <= n; i += 2) print part[i] }' \
    "$DDP_SOURCE_DIR/include/ERROR_TEXTS.md")
  return "$bad"
}
check "the errors are real" explained
cluster=$DDP_SOURCE_DIR/examples/cluster
if command -v shellcheck >/dev/null; then
  check "the job scripts pass shellcheck" shellcheck -s bash "$cluster"/slurm.sbatch "$cluster"/train.pbs "$cluster"/srun_shell.sh
fi
for script in slurm.sbatch train.pbs srun_shell.sh; do check "$script is a script" bash -n "$cluster/$script"; done
if python3 -c 'import yaml' 2>/dev/null; then
  check "the manifest is YAML of a service and an indexed job" python3 - "$cluster/kubernetes.yaml" <<'END'
import sys, yaml
service, job = yaml.safe_load_all(open(sys.argv[1]))
assert service["kind"] == "Service" and service["spec"]["clusterIP"] == "None"
spec, pod = job["spec"], job["spec"]["template"]["spec"]
assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"] == 2
assert pod["subdomain"] == service["metadata"]["name"] and f'--nnodes {spec["completions"]} ' in pod["containers"][0]["args"][0]
END
fi
exit $((failures > 0))
