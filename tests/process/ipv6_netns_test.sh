# SPDX-License-Identifier: Apache-2.0
# A host that has IPv6 alone (a network namespace whose loopback has no IPv4): ranks that ddprun starts, and ranks that another launcher starts with
# MASTER_ADDR=localhost, meet and add, over shared memory and over sockets.
if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null; then
  echo "network namespaces need root and the program ip"
  exit 77
fi
here=ddp6-$$
work=$(mktemp -d)
clean() {
  ip netns del "$here" 2>/dev/null
  rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM
if ! { ip netns add "$here" && ip -n "$here" link set lo up && ip -n "$here" -4 address flush dev lo; } 2>"$work/why"; then
  echo "network namespaces cannot be made here: $(head -1 "$work/why")"
  exit 77
fi
if ! ip -n "$here" -6 address show dev lo | grep -q ::1; then
  echo "this system has no IPv6"
  exit 77
fi

cat >"$work/add.c" <<'C'
#include <ddp/ddp.h>
#include <stdio.h>

int main(void) {
  ddp_group *group = NULL;
  float number[1] = {1};
  const int64_t one = 1;
  ddp_tensor tensor;
  if (ddp_group_create(NULL, NULL, &group) != DDP_OK || ddp_tensor_init(&tensor, number, DDP_F32, 1, &one) != DDP_OK ||
      ddp_group_all_reduce(group, &tensor, DDP_SUM, NULL) != DDP_OK) {
    fprintf(stderr, "%s\n", ddp_last_error());
    return 1;
  }
  printf("sum %g\n", number[0]);
  ddp_group_destroy(group);
  return 0;
}
C
library=$(dirname "$DDP_LIBRARY")
sanitize=${DDP_SANITIZE:+-fsanitize=$DDP_SANITIZE}
# shellcheck disable=SC2086
"$CC" $sanitize -I"$DDP_SOURCE_DIR/include" "$work/add.c" -o "$work/add" -L"$library" -lddp -Wl,-rpath,"$library" || exit 1

unset LOCAL_RANK LOCAL_WORLD_SIZE RANK WORLD_SIZE MASTER_ADDR MASTER_PORT DDP_SOCKET_IFNAME DDP_JOIN DDP_JOIN_FILE
failures=0
printf '127.0.0.1 localhost\n::1 localhost\n' >"$work/hosts" # as Debian has it; IPv4 first
at_localhost() { # rank, backend
  RANK=$1 WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT=29499 DDP_TOKEN=a-token-of-this-test-only DDP_BACKEND=$2 ip netns exec "$here" \
    unshare -m sh -c "mount --bind '$work/hosts' /etc/hosts && exec timeout 60 '$work/add'"
}
three_added() { # what, file
  if [ "$(grep -c 'sum 3$' "$2")" = 3 ]; then echo "ok: $1"; else
    echo "FAILED: $1"
    cat "$2"
    failures=$((failures + 1))
  fi
}
for backend in auto gloo; do
  DDP_BACKEND=$backend ip netns exec "$here" "$DDP_BUILD_DIR/bin/ddprun" -n 3 "$work/add" >"$work/launched-$backend" 2>&1
  three_added "ranks of ddprun, $backend" "$work/launched-$backend"
  for rank in 0 1 2; do
    at_localhost "$rank" "$backend" >>"$work/alone-$backend" 2>&1 &
  done
  wait
  three_added "ranks at localhost, $backend" "$work/alone-$backend"
done
exit "$failures"
