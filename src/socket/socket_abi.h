/* SPDX-License-Identifier: Apache-2.0 */
/* The table between libddp and the module that carries bytes between processes (libddp_gloo.so). Plain C: no exception and
 * no C++ type crosses it. A module exports one function, ddp_socket_query(version), and everything else is
 * found in the table.
 *
 * The model: an endpoint has an index among `size` endpoints and links to some of them. It is given connections that have
 * been admitted (socket/connector), or addresses, which the control plane carries. Over a link go messages; a
 * message is sent only when the receiver has posted memory for it, messages of one slot arrive in the order in which they
 * were posted, and A SENDER POSTS AT MOST AS MANY BYTES AS THE RECEIVER (and 1 or more): Gloo ends the process when more
 * bytes arrive than were expected. The number of received bytes is not reported; the first bytes of a message have it. A
 * link that fails ends the whole endpoint: the only calls that make sense then are close and destroy. A wait that timed out
 * may be made again.
 *
 * Threads: one at a time, except abort, which any thread may call at any time between create and destroy.
 * Errors: functions return a ddp_socket_result; when it is not DONE, one line of text was written to `error` (if `capacity`
 * > 0).
 * Implemented by modules/gloo/module.cpp and, between threads, by tests/support/local_endpoint.cpp.
 */
#ifndef DDP_SOCKET_ABI_H
#define DDP_SOCKET_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes whenever a function changes its meaning; functions that are only added grow struct_size. */
#define DDP_SOCKET_VERSION 9
#define DDP_SOCKET_QUERY_NAME "ddp_socket_query"

typedef struct ddp_socket_endpoint ddp_socket_endpoint;
/* One connection under TLS 1.3. */
typedef struct ddp_socket_seal ddp_socket_seal;
#define DDP_SOCKET_KEY_BYTES 32

enum ddp_socket_result {
  DDP_SOCKET_DONE = 0,
  DDP_SOCKET_TIMED_OUT = 1, /* it was not over within the time that the caller allowed */
  DDP_SOCKET_FAILED = 2,    /* the link or the endpoint is unusable; the text has the system's message */
  DDP_SOCKET_ABORTED = 3,   /* abort was called */
  DDP_SOCKET_EXHAUSTED =
      4 /* this process has no memory, threads or descriptors left; the text names which. As FAILED otherwise */
};

enum ddp_socket_seal_step {
  DDP_SOCKET_SEAL_DONE = 0,
  DDP_SOCKET_SEAL_READS = 1,    /* continue when the descriptor can be read */
  DDP_SOCKET_SEAL_WRITES = 2,   /* ... or written */
  DDP_SOCKET_SEAL_FAILED = 3,   /* the other side has another key, or is gone */
  DDP_SOCKET_SEAL_EXHAUSTED = 4 /* this process has no memory left */
};

enum ddp_socket_seal_result {
  DDP_SOCKET_SEAL_LATER = -1,
  DDP_SOCKET_SEAL_BROKEN = -2,
  DDP_SOCKET_SEAL_CHANGED = -3,
  DDP_SOCKET_SEAL_NO_MEMORY = -4
};

typedef struct ddp_socket_table {
  int64_t struct_size;
  int32_t version;
  int32_t lanes;   /* TCP connections that a link is made of; 0: it needs none */
  int32_t backend; /* the ddp_backend that a group over it reports */
  int32_t reserved;
  const char *name; /* "Gloo" */
  const char *wire; /* the protocol of a connection: endpoints with different texts cannot communicate */

  /* Open endpoint `index` of `size`. `set` names the set of endpoints that belong together, for tests. `one_host` is 1 if
   * all of them are on this host: then none may be reached from outside. */
  int32_t (*create)(int32_t index, int32_t size, const char *set, int32_t one_host, ddp_socket_endpoint **out, char *error,
                    int64_t capacity);
  /* What the others need to know to make their links to this endpoint; 0 bytes where connections are enough. Valid until
   * destroy. */
  const void *(*address)(ddp_socket_endpoint *endpoint, int64_t *out_bytes);
  /* Make the link to `peer` of `lanes` connected TCP sockets; the n-th is the peer's n-th. Both ends have been admitted, and
   * the next bytes were neither read nor written. `seals`: of each descriptor, or NULL for one that stays plain. Descriptors
   * and seals are the endpoint's when this returns, whatever it returns. `address` is the result of the peer's address(). */
  int32_t (*attach)(ddp_socket_endpoint *endpoint, int32_t peer, const int32_t *descriptors, ddp_socket_seal *const *seals,
                    const void *address, int64_t address_bytes, char *error, int64_t capacity);
  /* The memory stays untouched by the caller (send: unchanged) until the ticket was waited for, or close returned. */
  int32_t (*post_send)(ddp_socket_endpoint *endpoint, int32_t peer, uint64_t slot, const void *data, int64_t bytes,
                       int64_t *out_ticket, char *error, int64_t capacity);
  int32_t (*post_receive)(ddp_socket_endpoint *endpoint, int32_t peer, uint64_t slot, void *data, int64_t bytes,
                          int64_t *out_ticket, char *error, int64_t capacity);
  /* Wait for one ticket, 1 ms or more. DONE gives the ticket back; after TIMED_OUT it is as before. */
  int32_t (*wait)(ddp_socket_endpoint *endpoint, int64_t ticket, int64_t timeout_ms, char *error, int64_t capacity);
  /* End the wait that is under way, and every later one, within milliseconds. */
  void (*abort)(ddp_socket_endpoint *endpoint);
  /* Close all links. When it returns, no posted memory is read or written any more. */
  void (*close)(ddp_socket_endpoint *endpoint);
  void (*destroy)(ddp_socket_endpoint *endpoint);
  /* A number that changes while bytes are received or sent on any link, also within a message. */
  uint64_t (*moved)(ddp_socket_endpoint *endpoint);
  /* Packets that arrived after a gap, on all links: dropped ones, and reordered ones. 0 where unknown. */
  int64_t (*gaps)(ddp_socket_endpoint *endpoint);
  int64_t frame_bytes; /* in addition to a message: of its sender, and of its receiver's ready message */

  /* Begin to seal a connected, non-blocking TCP socket, which stays the caller's and outlives the seal. `listens`: this is
   * the end that was connected to. `key`: DDP_SOCKET_KEY_BYTES that both ends have. A seal is used by one thread at a time.
   * The result is that of create(). NULL if the module has no seals, as all that follows. */
  int32_t (*seal_create)(int32_t descriptor, int32_t listens, const unsigned char *key, ddp_socket_seal **out, char *error,
                         int64_t capacity);
  /* Continue the handshake: a ddp_socket_seal_step. After DONE the other end has proved the key. */
  int32_t (*seal_handshake)(ddp_socket_seal *seal, char *error, int64_t capacity);
  /* What has come, as recv(): its bytes; 0 when the other side has closed; LATER when nothing is there now; with a text
   * BROKEN when the connection failed, CHANGED when it carries other bytes than the other side has sent, and NO_MEMORY when
   * this process has none left. */
  int64_t (*seal_read)(ddp_socket_seal *seal, void *data, int64_t bytes, char *error, int64_t capacity);
  /* Send two pieces, one behind the other: how many bytes count as sent, or a ddp_socket_seal_result as above. The caller
   * comes again with the rest, unchanged, until all count. */
  int64_t (*seal_write)(ddp_socket_seal *seal, const void *first, int64_t first_bytes, const void *second,
                        int64_t second_bytes, char *error, int64_t capacity);
  void (*seal_destroy)(ddp_socket_seal *seal);
  /* The peer over whose sealed link other bytes came than it has sent, with a text; -1: none. Also after close(). */
  int32_t (*changed)(ddp_socket_endpoint *endpoint, char *error, int64_t capacity);
} ddp_socket_table;

/* The table of this module, or NULL when it has not this `version`. Valid as long as the module is loaded. */
typedef const ddp_socket_table *(*ddp_socket_query_fn)(int32_t version);

#ifdef __cplusplus
}
#endif
#endif
