/* SPDX-License-Identifier: Apache-2.0 */
/* main() of a C test whose cases are listed where they are defined: check_case in check.h. */
#include <stdlib.h>

#include "support/check.h"

enum { MOST_CASES = 64 };
static struct CMUnitTest cases[MOST_CASES];
static int lines[MOST_CASES];
static size_t count;

/* In the order of the file: constructors promise none. */
void check_list(struct CMUnitTest one, int line) {
  if (count == MOST_CASES) abort();
  size_t at = count++;
  for (; at > 0 && lines[at - 1] > line; at--) {
    cases[at] = cases[at - 1];
    lines[at] = lines[at - 1];
  }
  cases[at] = one;
  lines[at] = line;
}

static CMFixtureFunction before_all, after_all;

void check_list_steps(CMFixtureFunction before, CMFixtureFunction after) {
  before_all = before;
  after_all = after;
}

int main(void) { return _cmocka_run_group_tests("tests", cases, count, before_all, after_all); }
