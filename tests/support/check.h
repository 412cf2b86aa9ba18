/* SPDX-License-Identifier: Apache-2.0 */
/* Checks for the C tests of the public API: they print both values, never jump (so they may be used on any thread), and hold
 * every call to the rules of include/README.md: a call that fails leaves a sentence, one that succeeds leaves the last
 * sentence alone.
 * A failed check is counted, and fails the case that it belongs to. */
#ifndef DDP_TESTS_CHECK_H
#define DDP_TESTS_CHECK_H

#include <ddp/experimental.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int check_failures; /* any thread */

/* The text of a failure that no test asks for; every call is preceded by it. */
static const char *const check_sentinel_call = "ddp_tensor_init";

static inline void check_fail(const char *file, int line, const char *what, const char *got, const char *wanted) {
  __atomic_add_fetch(&check_failures, 1, __ATOMIC_SEQ_CST);
  fprintf(stderr, "%s:%d: %s: got %s, wanted %s\n", file, line, what, got, wanted);
}

/* Store a known text, so that a test sees whether the next call changes it. */
static inline void check_arm(void) { (void)ddp_tensor_init(NULL, NULL, DDP_F32, 0, NULL); }

static inline int check_armed(void) {
  return strncmp(ddp_last_error(), check_sentinel_call, strlen(check_sentinel_call)) == 0;
}

static inline int check_ok_at(ddp_status status, const char *what, const char *file, int line) {
  if (status != DDP_OK) {
    check_fail(file, line, what, ddp_last_error(), "success");
  } else if (!check_armed()) {
    check_fail(file, line, what, ddp_last_error(), "an untouched error text after success");
  }
  return status == DDP_OK;
}

static inline void check_error_at(ddp_status status, ddp_status wanted, const char *what, const char *file, int line) {
  const char *text = ddp_last_error();
  if (status != wanted) {
    char got[600];
    snprintf(got, sizeof got, "%s (%.500s)", ddp_status_name(status), text);
    check_fail(file, line, what, got, ddp_status_name(wanted));
  } else if (check_armed() || strlen(text) < 12 || strchr(text, '\n') != NULL) {
    check_fail(file, line, what, text, "one sentence about this failure");
  }
}

static inline void check_int_at(int64_t got, int64_t wanted, const char *what, const char *file, int line) {
  char left[32], right[32];
  snprintf(left, sizeof left, "%lld", (long long)got);
  snprintf(right, sizeof right, "%lld", (long long)wanted);
  if (got != wanted) check_fail(file, line, what, left, right);
}

static inline void check_number_at(double got, double wanted, const char *what, const char *file, int line) {
  char left[40], right[40];
  snprintf(left, sizeof left, "%.17g", got);
  snprintf(right, sizeof right, "%.17g", wanted);
  if (!(got == wanted) && !(got != got && wanted != wanted)) check_fail(file, line, what, left, right);
}

static inline void check_text_at(const char *text, const char *part, const char *what, const char *file, int line) {
  if (text == NULL || strstr(text, part) == NULL) check_fail(file, line, what, text ? text : "NULL", part);
}

/* The call succeeds and does not touch the error text. */
#define check_ok(call) check_ok_at((check_arm(), (call)), #call, __FILE__, __LINE__)
/* The call fails with this status, and its text is one sentence. */
#define check_error(wanted, call) check_error_at((check_arm(), (call)), wanted, #call, __FILE__, __LINE__)
/* As check_error, and the sentence contains a text. */
#define check_error_text(wanted, call, part) (check_error(wanted, call), check_text(ddp_last_error(), part))
/* A structure as its init function fills it: check_defaults(model_options, options); */
#define check_defaults(type, name) \
  ddp_##type name;                 \
  check_ok(ddp_##type##_init(&name, sizeof name))
/* Equal integers; equal floating-point numbers (NaN equals NaN). */
#define check_int(got, wanted) check_int_at((int64_t)(got), (int64_t)(wanted), #got, __FILE__, __LINE__)
#define check_number(got, wanted) check_number_at((double)(got), (double)(wanted), #got, __FILE__, __LINE__)
/* The text contains the part. */
#define check_text(text, part) check_text_at(text, part, #text, __FILE__, __LINE__)
#define check_true(condition) check_int((condition) != 0, 1)

static inline int check_setup(void **state) {
  (void)state;
  check_failures = 0;
  return 0;
}

static inline int check_teardown(void **state) {
  (void)state;
  return check_failures == 0 ? 0 : -1;
}

/* The head of a case, which a failed check fails: check_case(sums_are_exact) { check_int(1 + 1, 2); }
 * It is in the list of its program, whose main() is in support/check_cases.c. */
#define check_case(function)                                                                           \
  static void function(void **state);                                                                  \
  __attribute__((constructor)) static void function##_is_listed(void) {                                \
    check_list((struct CMUnitTest){#function, function, check_setup, check_teardown, NULL}, __LINE__); \
  }                                                                                                    \
  static void function(__attribute__((unused)) void **of_cmocka)
void check_list(struct CMUnitTest one, int line);

/* Steps before and after all cases of the program. */
#define check_around(before, after) \
  __attribute__((constructor)) static void steps_are_listed(void) { check_list_steps(before, after); }
void check_list_steps(CMFixtureFunction before, CMFixtureFunction after);

/* A table with this one would pass with failed checks. */
#undef cmocka_unit_test

#endif
