#include "reduce/join.hpp"

#include "base/bytes.hpp"
#include "reduce/model.hpp"
#include "reduce/pass.hpp"

namespace ddp {
namespace {

/// The lowest of the ranks that joined after the most passes.
int32_t newest(Group& group, int64_t rounds) {
  ByteWriter mine;
  mine.number(rounds);
  int64_t most = -1;
  int32_t newest = 0;
  const std::vector<std::string> all = group.gather("join", mine.bytes());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto theirs = ByteReader(all[rank]).number<int64_t>();
    if (theirs <= most) continue;
    most = theirs;
    newest = static_cast<int32_t>(rank);
  }
  return newest;
}

void answer_pass(Pass& pass, Group& group, void* stream) {
  pass.begin(DDP_PASS_REDUCE, Pass::Role::kJoined);
  try {
    pass.end(stream);
  } catch (const Error& error) {
    group.check_usable();  // a void pass is the others' affair
    if (error.status() != DDP_ERROR_INVALID_STATE) throw;
  }
}

}  // namespace

int32_t answer_until_all_joined(Model& model, void* stream) {
  Group& group = model.group();
  Pass& pass = model.pass();
  const int64_t rounds = pass.rounds();
  pass.note_absence(-1);  // that others joined before is a reason to refuse what this rank begins, and it begins nothing any more
  for (;;) {
    const RollCall& roll = pass.call_roll(Call::kNothing, 0, true);
    if (roll.heard(Call::kPass))
      answer_pass(pass, group, stream);
    else if (roll.heard(Call::kSyncBuffers))
      model.answer_sync_buffers(roll, stream);
    else if (!roll.heard(Call::kRefused))
      break;
  }
  pass.note_absence(-1);
  return newest(group, rounds);
}

}  // namespace ddp
