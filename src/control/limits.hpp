// SPDX-License-Identifier: Apache-2.0
// What the control plane takes from others, at most. Checked before anything is allocated.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::bootstrap::limits {

inline constexpr uint32_t kProtocol = 15;  // raised whenever the frames change

inline constexpr size_t kBlobBytes = size_t{8} << 20;    // of one rank in a gather
inline constexpr size_t kGatherBytes = size_t{1} << 30;  // of all ranks together
inline constexpr size_t kNameBytes = 256;                // a gather's name
inline constexpr size_t kLetterBytes = 512;              // for one other rank
inline constexpr size_t kTextBytes = 2048;               // an error's text
inline constexpr size_t kHostBytes = 256;                // host name, boot id, address of a member
inline constexpr int32_t kRanks = 65'536;

inline constexpr size_t kStrangerBytes = 256;          // before a connection has proved who it is
inline constexpr int64_t kStrangerMs = 5'000;          // and its time for that
inline constexpr size_t kUnauthenticatedPending = 64;  // in addition to the world size, or as descriptors allow
inline constexpr int64_t kComeAgainMs = 500;           // who loses its connection before the group has formed may come again
inline constexpr int32_t kPorts = 17;                  // the asked port and the 16 after it
inline constexpr int64_t kLeaveMs = 1'000;             // bound of leave()
inline constexpr int64_t kSecondaryCauseMs = 200;      // a cause that is often a consequence waits so long for a better one
inline constexpr int64_t kSlowestClockMs = INT64_MAX / 4'000'000;  // of heartbeats and silence: 73 years, as nanoseconds
inline constexpr int64_t kTicksInSilence = 10;  // least number of ticks in the silence after which a rank counts as dead
inline constexpr int64_t kHearMs = 250;         // most delay until rank 0's own program gets a cause after the others
inline constexpr int64_t kFirstCauseMs =
    600;  // who broke the group, or saw it break, waits so long for the cause that all get

}  // namespace ddp::bootstrap::limits
