// SPDX-License-Identifier: Apache-2.0
// The contract of a part: a feature that takes part in the passes of a model (parts/). The pass knows its marks, its buckets
// and their results; whatever else happens in a pass is done by a part behind this interface. The parts of a model stand in
// one order, the same on all ranks (parts/model_pass.hpp); each call goes to all of them in that order. A part overrides
// what concerns it; the rest does nothing.
//
// Once for each model, while it is committed, in this order (the caller's thread; collective; may throw on all ranks alike):
//   traits       what the part makes of passes; again at the begin of each pass. Pure.
//   describe     for each bucket: changes what is asked of the transport. Pure; again for exchanges that come later.
//   prepare      for each bucket: gives the operation in the place of the transport's. The first part that gives one counts.
//
// For each pass, in this order:
//   require      Throws if the pass may not begin, and changes nothing. All parts, before anything of the pass happens.
//   begin        The pass is open in the group and nothing is sent. May throw OUT_OF_MEMORY; then no pass is open, `closed`
//                does not come, and what the part has begun is begun again by the next pass.
//   choose       Of a REDUCE pass, for each bucket: its operation in this pass.
//   opened       All parts have begun. Pushes what goes before the buckets; never waits.
//   marked       For the one part that traces (Opening::tracer), on a thread that marks. A mark calls nothing else.
//   fill         For each bucket of a REDUCE pass as it starts: changes this rank's header of it, which each part finds as
//                the one before has left it. On a thread that marks, under the lock that orders starts: allocates nothing.
//   starting     After fill, for the part that traces: what is recorded when the bucket is done.
//   started      The bucket's operation is on the queue. Pushes what follows it. Same thread and lock as fill; allocates
//                nothing and throws only what the start of an exchange throws.
// At the end of a REDUCE pass, on the thread that ends it, once the queue is drained:
//   is_void      Is the pass void for the part's sake? From facts that all ranks have: no rank answers otherwise.
//   left         For each bucket of a pass that is not void: what its gradients are now. From such facts too. The pass's
//                results hold it before the next call.
//   order        What the part has enqueued on a GPU comes before what follows on the communication stream. After it a group
//                that can recover waits for the device.
//   conclude     The verdict is known. May be collective, and may fail on all ranks alike. False: parameters are changed in
//                part, for good.
//   answer       On a rank that only answers (Role::kJoined): follows what the others do in conclude. False: their step
//                failed, so the pass does not count.
//   report       Throws why the pass, or the step in it, failed on all ranks. The first part that throws is what the program
//                gets; if none does, the pass itself tells what is missing (`add_missing`) or that no rank contributed.
// At the end of a PART pass:
//   end_part     What is marked, and what is missing, belong to a part of the global batch.
// At the end of each pass:
//   broken       Of a REDUCE pass that could not be ended, because the group broke or an error stopped it here. The queue is
//                drained, and no other rank changes anything here. Instead of the calls behind it.
//   closed       The pass is not open any more. Throws nothing. Also after `broken`, with Outcome::kBroken.
//   left_open    In the place of the end: the model is destroyed within a pass, and the queue is drained. Throws nothing.
//
// At any time between passes (the caller's thread; the last two throw nothing):
//   await_values Values are read or changed next: returns when those that come late have come. Throws the first cause.
//   changed      Gradients or values are others now.
//   set_address  A gradient moves. False: the others reach into its memory, so it cannot; also within a pass.
// Tested by unit/pass/part_order_test.cpp, which holds this order for each kind of pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/plan.hpp"
#include "ddp/backward.h"
#include "exchange/bucket_header.hpp"
#include "exchange/progress_queue.hpp"
#include "exchange/transport.hpp"
#include "pass/incomplete_pass.hpp"
#include "pass/marks.hpp"
#include "trace/event.hpp"

namespace ddp::pass {

class PassPart;

/// How this rank takes part in a pass. One that skips it or has joined sends nothing and receives the result.
enum class Role { kTraining, kSkipping, kJoined, kAbandoning };

/// What the parts of a model make of its passes; joined over all parts.
struct Traits {
  bool waits = false;           // operations wait for other ranks inside functions of the program
  bool pulled = false;          // the program works on the buckets, one after the other
  bool reduces_copies = false;  // some bucket is reduced in another place than its gradients
  bool partial = false;         // what a rank contributes is known only when the pass ends
  bool uneven = false;          // a rank may only answer
  bool calls_program = false;   // what follows a bucket in the pass that begins calls a function of the program
  bool steps = false;           // parameters change in a REDUCE pass that begins now
  bool shards = false;          // of some optimizer's state each rank has a part

  void join(const Traits& other) noexcept {
    waits = waits || other.waits;
    pulled = pulled || other.pulled;
    reduces_copies = reduces_copies || other.reduces_copies;
    partial = partial || other.partial;
    uneven = uneven || other.uneven;
    calls_program = calls_program || other.calls_program;
    steps = steps || other.steps;
    shards = shards || other.shards;
  }
};

/// A pass that begins.
struct Opening {
  ddp_pass mode;
  Role role;
  int64_t number;  // passes of the model that ended well before
  collective::ProgressQueue& queue;
  PassPart* tracer = nullptr;  // set by the part that traces the pass
};

/// What the gradients of a bucket are behind a pass; joined over all parts.
struct Left {
  bool sliced = false;  // each rank has the mean in its own slice only
  bool sums = false;    // they are sums, which the step divides
};

/// A REDUCE pass whose buckets are done.
struct Verdict {
  Role role;
  bool is_void;
  collective::Participation all;  // joined over all ranks
  int64_t waited_ns;              // by the thread that ended the pass, for its buckets
};

enum class Outcome {
  kGood,
  kVoid,        // on all ranks; of a pass that does not reduce: on this rank
  kStepFailed,  // the gradients are good, and the step in the pass failed on all ranks
  kBroken       // the pass could not be ended
};

/// A pass that is over.
struct Closing {
  ddp_pass mode;
  Outcome outcome;
  collective::ProgressQueue& queue;
};

/// What has changed outside of passes.
enum class Change {
  kGradientsZeroed,
  kGradientsScaled,
  kStep,    // a step that the last pass has made is over
  kLoad,    // parameters and state are about to be loaded
  kBuffers  // parameters or buffers are others now
};

class PassPart {
 public:
  virtual ~PassPart() = default;

  [[nodiscard]] virtual Traits traits() const noexcept { return {}; }
  virtual void describe(collective::BucketSpec&) const {}
  [[nodiscard]] virtual std::unique_ptr<collective::BucketOperation> prepare(const collective::BucketSpec&) {
    return nullptr;
  }

  virtual void require(ddp_pass, Role) const {}
  virtual void begin(Opening&) {}
  [[nodiscard]] virtual collective::BucketOperation& choose(size_t, collective::BucketOperation& usual) noexcept {
    return usual;
  }
  virtual void opened(const Opening&) {}
  virtual void marked(int32_t, std::span<const PiecePlace>) noexcept {}
  virtual void fill(size_t, collective::BucketHeader&) noexcept {}
  [[nodiscard]] virtual const trace::Event* starting(size_t) noexcept { return nullptr; }
  virtual void started(size_t, collective::BucketOperation&, collective::ProgressQueue&) {}

  [[nodiscard]] virtual bool is_void() const noexcept { return false; }
  [[nodiscard]] virtual Left left(size_t) const noexcept { return {}; }
  virtual void order() {}
  [[nodiscard]] virtual bool conclude(const Verdict&) { return true; }
  [[nodiscard]] virtual bool answer(const Verdict&) { return true; }
  virtual void report() {}
  virtual void add_missing(MissingGradients&) const {}
  virtual void end_part(const Marks&, MissingGradients) {}
  virtual void broken() {}
  virtual void closed(const Closing&) noexcept {}
  virtual void left_open() noexcept {}

  virtual void await_values() {}
  virtual void changed(Change) noexcept {}
  [[nodiscard]] virtual bool set_address(size_t, int32_t, std::byte*) noexcept { return true; }
};

}  // namespace ddp::pass
