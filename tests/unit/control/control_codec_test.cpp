// SPDX-License-Identifier: Apache-2.0
// Frames, messages and proofs: written ones are read again, and changed ones are refused.

#include "support/any_message.hpp"
#include "support/check.hpp"

constexpr uint64_t kSeed = 20;

bootstrap::auth::Key key_of(unsigned char byte) {
  bootstrap::auth::Key key;
  key.fill(byte);
  return key;
}

std::string sealed(bootstrap::FrameWriter& writer, bootstrap::FrameType type, const std::string& bytes) {
  const bootstrap::Body body(bytes);
  return writer.frame(type, body).around(body);
}

std::string middle_of(const std::string& frame) {
  return frame.substr(bootstrap::kFrameHead, frame.size() - bootstrap::kFrameHead - sizeof(bootstrap::auth::Tag));
}

/// Rank 0 with a connection to each of some ranks.
struct Rank0 {
  std::shared_ptr<bootstrap::GroupKey> key = std::make_shared<bootstrap::GroupKey>();
  std::vector<bootstrap::FrameWriter> writers;
  std::vector<bootstrap::FrameReader> readers;  // of the ranks
  std::vector<std::string> first;               // frames
  explicit Rank0(unsigned char ranks) : writers(ranks) {
    for (unsigned char rank = 0; rank < ranks; ++rank) {
      writers[rank].secure(key_of(rank), key);
      first.push_back(writers[rank].group_key().around(bootstrap::Body("")));
      readers.emplace_back(1'000).secure(key_of(rank));
    }
  }
};

std::optional<bootstrap::Frame> read(bootstrap::FrameReader& reader, const std::string& stream) {
  std::string_view bytes(stream);
  return reader.read(bytes);
}

ddp_case(a_secured_frame_shows_nothing_of_its_body) {
  bootstrap::FrameWriter writer;
  writer.secure(key_of(7));
  const std::string body(100, 'x');
  const std::string one = sealed(writer, bootstrap::FrameType::kGather, body),
                    two = sealed(writer, bootstrap::FrameType::kGather, body);
  expect(one.find("xxx") == std::string::npos && two.find("xxx") == std::string::npos, "no plain text");
  expect(middle_of(one) != middle_of(two), "the same words look different the second time");
}

ddp_case(a_body_for_all_is_encrypted_once_and_each_rank_reads_it) {
  Rank0 rank0(3);
  const bootstrap::Body body(std::string(100, 'x')), next(std::string(100, 'x'));
  std::vector<std::string> frames, later;
  for (bootstrap::FrameWriter& writer : rank0.writers) {
    frames.push_back(writer.frame(bootstrap::FrameType::kReply, body).around(body));
    later.push_back(writer.frame(bootstrap::FrameType::kReply, next).around(next));
  }
  expect(frames[0].find("xxx") == std::string::npos, "no plain text");
  expect(middle_of(frames[0]) == middle_of(frames[2]), "encrypted once");
  expect(frames[0] != frames[2], "with a tag for each rank");
  expect(middle_of(frames[0]) != middle_of(later[0]), "the same words look different the second time");
  for (size_t rank = 0; rank < frames.size(); ++rank) {
    const auto frame = read(rank0.readers[rank], rank0.first[rank] + frames[rank]);
    expect(frame.has_value() && frame->body == body.bytes() && frame->type == bootstrap::FrameType::kReply, "read");
    expect(read(rank0.readers[rank], later[rank])->body == next.bytes(), "and the next");
  }
}

// Each rank has the key of the group.
ddp_case(a_rank_cannot_speak_for_rank_0_to_another_one) {
  Rank0 rank0(2);
  const bootstrap::Body body(std::string("an honest body"));
  for (size_t rank = 0; rank < 2; ++rank) (void)read(rank0.readers[rank], rank0.first[rank]);
  bootstrap::FrameWriter forger;
  forger.secure(key_of(0), rank0.key);  // rank 0 of the two, to the other
  (void)forger.group_key();
  expect_error(DDP_ERROR_IO,
               [&] { (void)read(rank0.readers[1], forger.frame(bootstrap::FrameType::kFailed, body).around(body)); });
  const std::string mine = rank0.writers[0].frame(bootstrap::FrameType::kReply, body).around(body);
  bootstrap::FrameReader other(1'000);
  other.secure(key_of(1));
  (void)read(other, rank0.first[1]);
  expect_error(DDP_ERROR_IO, [&] { (void)read(other, mine); });  // what was for one rank is not for another
}

ddp_case(every_changed_bit_of_a_frame_for_all_is_noticed) {
  Rank0 rank0(1);
  const bootstrap::Body body(std::string("a body of some bytes"));
  const std::string good = rank0.writers[0].frame(bootstrap::FrameType::kReply, body).around(body);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    bootstrap::FrameReader reader(1'000);
    reader.secure(key_of(0));
    (void)read(reader, rank0.first[0]);
    bool accepted = false;
    try {
      accepted = read(reader, bad).has_value();
    } catch (const Error&) {
    }
    expect(!accepted, "bit " + std::to_string(bit) + " is noticed");
  }
}

ddp_case(frames_are_read_however_the_stream_is_cut) {
  for (const bool secure : {false, true}) {
    bootstrap::FrameWriter writer;
    if (secure) writer.secure(key_of(1));
    std::string stream;
    for (size_t i = 0; i < 50; ++i)
      stream += sealed(writer, bootstrap::FrameType::kGather, std::string(i * i, static_cast<char>(i)));
    for (uint64_t turn = 0; turn < 20; ++turn) {
      bootstrap::FrameReader reader(10'000);
      if (secure) reader.secure(key_of(1));
      size_t at = 0, frames = 0;
      while (at < stream.size()) {
        const size_t piece = std::min<size_t>(1 + philox_u64(kSeed, turn, at) % 300, stream.size() - at);
        std::string_view bytes = std::string_view(stream).substr(at, piece);
        at += piece;
        while (auto frame = reader.read(bytes)) {
          expect(frame->body == std::string(frames * frames, static_cast<char>(frames)), "the body is the same");
          ++frames;
        }
        expect(bytes.empty(), "nothing is left over");
      }
      expect_equal(frames, size_t{50}, "frames");
    }
  }
}

ddp_case(a_length_above_the_limit_is_refused_at_once) {
  for (const uint32_t length : {257u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    std::string head(reinterpret_cast<const char*>(&length), sizeof length);
    head += static_cast<char>(bootstrap::FrameType::kHello);
    bootstrap::FrameReader reader(256);
    std::string_view bytes(head);
    expect_error(DDP_ERROR_IO, [&] { (void)reader.read(bytes); });
  }
}

ddp_case(every_changed_bit_of_a_sealed_frame_is_noticed) {
  bootstrap::FrameWriter writer;
  writer.secure(key_of(7));
  const std::string good = sealed(writer, bootstrap::FrameType::kAbort, "a body of some bytes");
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    bootstrap::FrameReader reader(1'000);
    reader.secure(key_of(7));
    std::string_view bytes(bad);
    bool accepted = false;
    try {
      accepted = reader.read(bytes).has_value();
    } catch (const Error&) {
    }
    expect(!accepted, "bit " + std::to_string(bit) + " is noticed");
  }
}

ddp_case(repeated_swapped_and_foreign_frames_are_noticed) {
  bootstrap::FrameWriter writer;
  writer.secure(key_of(7));
  const std::string one = sealed(writer, bootstrap::FrameType::kBeat, "1"),
                    two = sealed(writer, bootstrap::FrameType::kBeat, "2");
  for (const std::string& stream : {one + one, two, two + one}) {
    bootstrap::FrameReader reader(1'000);
    reader.secure(key_of(7));
    std::string_view bytes(stream);
    expect_error(DDP_ERROR_IO, [&] {
      while (reader.read(bytes).has_value()) {
      }
    });
  }
  bootstrap::FrameReader other(1'000);
  other.secure(key_of(8));
  std::string_view bytes(one);
  expect_error(DDP_ERROR_IO, [&] { (void)other.read(bytes); });
}

// Cut and damaged messages are refused with an error, and never read past their end (the sanitizers watch).
template <class Read>
void torture(const std::string& good, Read read) {
  const auto try_it = [&](const std::string& bytes) {
    try {
      (void)read(bytes);
    } catch (const Error&) {
      return false;
    }
    return true;
  };
  expect(try_it(good), "the whole message is read");
  for (size_t size = 0; size < good.size(); ++size) expect(!try_it(good.substr(0, size)), "a cut message is refused");
  expect(!try_it(good + "x"), "a byte too many is refused");
  for (uint64_t i = 0; i < 3'000; ++i) {
    std::string bad = good;
    for (uint64_t n = 0; n <= i % 4; ++n)
      bad[philox_u64(kSeed, i, 2 * n) % bad.size()] = static_cast<char>(philox_u64(kSeed, i, 2 * n + 1));
    (void)try_it(bad);
  }
}

/// Call `fn` for each kind of message, with its type.
void for_each_message(auto fn) {
  for (int type = 1; type <= bootstrap::kLastFrameType; ++type)
    bootstrap::messages::with_message_of(static_cast<bootstrap::FrameType>(type), fn);
}

ddp_case(every_message_is_read_as_it_was_written) {
  int kinds = 0;
  for_each_message([&]<class Message>(std::type_identity<Message>) {
    ++kinds;
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const std::string bytes = bootstrap::messages::write(any_message<Message>(seed));
      expect(bootstrap::messages::write(bootstrap::messages::read<Message>(bytes)) == bytes,
             "seed " + std::to_string(seed) + ", kind " + std::to_string(kinds));
      expect(bytes.size() <= bootstrap::messages::longest<Message>(), "no longer than the longest");
    }
  });
  expect_equal(kinds, 17, "types of frames that hold a message");
}

ddp_case(messages_survive_damage) {
  for_each_message([]<class Message>(std::type_identity<Message>) {
    for (uint64_t seed = 0; seed < 3; ++seed)
      torture(bootstrap::messages::write(any_message<Message>(seed)), bootstrap::messages::read<Message>);
  });
}

// What a rank has to be able to read, by hand: a text with its length is four bytes longer.
ddp_case(the_longest_messages_are_known) {
  namespace m = bootstrap::messages;
  namespace limits = bootstrap::limits;
  expect_equal(m::longest<m::Death>(), size_t{4}, "a rank");
  expect_equal(m::longest<m::Letter>(), 4 + 4 + limits::kLetterBytes, "a letter");
  constexpr size_t kDetails = 1 + 2 * (4 + kListed * 4) + 4 + 4 + 8 + 8;
  expect_equal(m::longest<Error>(), 4 + 4 + 4 + limits::kTextBytes + kDetails, "an error");
  expect_equal(m::longest<m::Gather>(), 8 + 8 + 8 + 2 + 4 + limits::kNameBytes + 4 + limits::kBlobBytes, "a gather");
  expect(m::longest<m::Reply>() > limits::kGatherBytes, "a reply holds all contributions");
  const std::string host(limits::kHostBytes, 'h'), other(limits::kHostBytes, 'o');
  const bootstrap::Member one{0, host, host, 1, host, -1, 0}, two{1, other, other, 1, other, -1, 1};
  const size_t each = (m::write(m::Table{1, 2, 0, {one, two}}).size() - m::write(m::Table{}).size()) / 2;
  expect_equal(m::longest<m::Table>(), m::write(m::Table{}).size() + each * limits::kRanks, "a table of the longest names");
}

ddp_case(what_neighbours_say_alike_goes_over_the_wire_once) {
  namespace m = ddp::bootstrap::messages;
  std::vector<std::string> blobs(1'000, "the same words of all ranks");
  expect(m::write(m::Reply{7, blobs}).size() < 100, "a reply of a thousand equal contributions is short");
  for (const size_t other : {size_t{0}, size_t{500}, blobs.size() - 1}) {
    std::vector<std::string> said = blobs;
    said[other] = "others";
    expect(m::read<m::Reply>(m::write(m::Reply{7, said})).blobs == said, "every rank keeps its own words");
  }
  expect(m::read<m::Reply>(m::write(m::Reply{7, {}})).blobs.empty(), "of nobody");

  m::Table table{1, 2, -1, {}};
  for (int32_t rank = 0; rank < 64; ++rank) {
    bootstrap::Member member;
    member.rank = member.id = rank;
    member.pid = 100 + rank;
    member.host = "host" + std::to_string(rank / 8);
    member.boot_id = std::to_string(rank / 8) + std::string(35, 'b');
    member.address = rank % 3 == 0 ? "" : "10.0.0." + std::to_string(rank / 8);
    table.members.push_back(member);
  }
  const std::string bytes = m::write(table);
  expect(bytes.size() < 64 * 50, "a host's name and boot id are there once");
  const m::Table again = m::read<m::Table>(bytes);
  expect_equal(again.members.size(), table.members.size(), "members");
  for (size_t i = 0; i < table.members.size(); ++i) {
    const bootstrap::Member &said = table.members[i], &heard = again.members[i];
    expect(said.host == heard.host && said.boot_id == heard.boot_id && said.address == heard.address &&
               said.pid == heard.pid && said.id == heard.id,
           "member " + std::to_string(i) + " is the same");
  }
}

ddp_case(a_reply_that_would_fill_the_memory_is_refused) {
  const auto reply = [](uint32_t count, uint32_t ranks, const std::string& blob) {
    return ByteWriter().number(uint64_t{1}).number(count).number(ranks).text(blob).bytes();
  };
  const auto refused = [](const std::string& bytes) {
    expect_error(DDP_ERROR_IO, [&] { (void)bootstrap::messages::read<bootstrap::messages::Reply>(bytes); });
  };
  refused(reply(1u << 31, 1u << 31, ""));
  refused(reply(65'536, 65'536, std::string(100'000, 'x')));
  refused(reply(4, 5, "more than there are"));
  refused(reply(4, 0, "of nobody"));
}

ddp_case(greetings_fit_into_what_strangers_may_send) {
  expect(bootstrap::messages::longest<bootstrap::messages::Hello>() <= bootstrap::limits::kStrangerBytes, "a greeting fits");
}

ddp_case(a_proof_fits_one_claim_one_role_and_one_token) {
  const bootstrap::auth::Token token = "secret";
  bootstrap::auth::Claim claim{bootstrap::auth::random_nonce(), bootstrap::auth::random_nonce(),
                               bootstrap::auth::group_id("job", "place", "name"), 1, 4};
  const bootstrap::auth::Bytes32 proof = bootstrap::auth::prove(token, bootstrap::auth::Role::kClient, claim);
  expect(bootstrap::auth::is_proof(proof, token, bootstrap::auth::Role::kClient, claim), "the right proof holds");
  expect(!bootstrap::auth::is_proof(proof, token, bootstrap::auth::Role::kServer, claim), "a reflected proof does not");
  expect(!bootstrap::auth::is_proof(proof, bootstrap::auth::Token("Secret"), bootstrap::auth::Role::kClient, claim),
         "nor one of another token");
  expect(!bootstrap::auth::is_proof(proof, bootstrap::auth::Token(), bootstrap::auth::Role::kClient, claim),
         "nor one where no token is");
  for (const auto change :
       {+[](bootstrap::auth::Claim& c) { c.rank = 2; }, +[](bootstrap::auth::Claim& c) { c.size = 5; },
        +[](bootstrap::auth::Claim& c) { c.server[3] ^= 1; }, +[](bootstrap::auth::Claim& c) { c.client[31] ^= 1; },
        +[](bootstrap::auth::Claim& c) { c.group = bootstrap::auth::group_id("job2", "place", "name"); }}) {
    bootstrap::auth::Claim other = claim;
    change(other);
    expect(!bootstrap::auth::is_proof(proof, token, bootstrap::auth::Role::kClient, other), "nor one of another claim");
  }
  const bootstrap::auth::SessionKeys keys = bootstrap::auth::session_keys(token, claim);
  expect(keys.to_client != keys.to_server && keys.to_client != proof, "keys differ from each other and from what was sent");
  expect(bootstrap::auth::group_id("ab", "c", "d") != bootstrap::auth::group_id("a", "bc", "d"),
         "job and place do not run together");
  expect(bootstrap::auth::group_id("a", "bc", "d") != bootstrap::auth::group_id("a", "b", "cd"),
         "place and name do not run together");
}
