// SPDX-License-Identifier: Apache-2.0
// Bytes between GPU and host memory, and the memory that calls share.
#include "device/gpu/transfer.hpp"

#include "device/gpu/scratch.hpp"
#include "support/check.hpp"
#include "support/gpu_world.hpp"

constexpr int64_t kBlock = gpu::Transfer::kBlockBytes;

std::vector<uint8_t> pattern(int64_t bytes, unsigned seed) {
  std::vector<uint8_t> values(static_cast<size_t>(bytes));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>((i * 2654435761u + seed) >> 13);
  return values;
}

Tensor on_gpu(const GpuArray& array, const gpu::Device& device) {
  Tensor tensor = flat_tensor(array.data(), DDP_U8, array.bytes());
  tensor.device_index = device.index();
  tensor.device = &device;
  return tensor;
}

template <class Body>
void on_device(Body&& body) {
  const FakeGpus gpus(5);
  {
    const gpu::Device device(fake_gpu::table(), 0, "rank 0");
    body(device);
  }
  FakeGpus::expect_clean();
}

ddp_case(any_part_is_read_and_written_as_it_is) {
  on_device([](const gpu::Device& device) {
    const int64_t bytes = 3 * kBlock + 12'345;
    GpuArray array(0, bytes);
    const std::vector<uint8_t> values = pattern(bytes, 1), other = pattern(bytes, 2);
    array.poke(values);
    const Tensor tensor = on_gpu(array, device);
    gpu::Transfer transfer(&device);
    struct Part {
      int64_t offset, bytes;
    };
    for (const Part part : {Part{0, bytes}, Part{7, kBlock}, Part{kBlock - 1, kBlock + 2}, Part{5, 0}, Part{bytes - 1, 1}}) {
      std::vector<uint8_t> got(static_cast<size_t>(part.bytes));
      transfer.read_to(tensor, part.offset, part.bytes, reinterpret_cast<std::byte*>(got.data()));
      expect(std::equal(got.begin(), got.end(), values.begin() + part.offset), "read at " + std::to_string(part.offset));
    }
    std::vector<uint8_t> wanted = values;
    for (const Part part : {Part{3, 2 * kBlock + 5}, Part{bytes - 9, 9}, Part{1, 1}}) {
      transfer.write_from(tensor, part.offset, part.bytes, reinterpret_cast<const std::byte*>(other.data() + part.offset));
      std::copy_n(other.begin() + part.offset, part.bytes, wanted.begin() + part.offset);
    }
    transfer.finish();
    expect(array.peek<uint8_t>() == wanted, "written where it belongs, and nowhere else");
  });
}

ddp_case(reading_again_after_a_reader_has_failed_begins_anew) {
  on_device([](const gpu::Device& device) {
    GpuArray array(0, 3 * kBlock);
    const std::vector<uint8_t> values = pattern(3 * kBlock, 3);
    array.poke(values);
    gpu::Transfer transfer(&device);
    (void)expect_error(DDP_ERROR_IO, [&] {
      transfer.read(on_gpu(array, device), 0, array.bytes(),
                    [](const std::byte*, int64_t) { throw Error(DDP_ERROR_IO, "no"); });
    });
    std::vector<uint8_t> got(values.size());
    transfer.read_to(on_gpu(array, device), 0, array.bytes(), reinterpret_cast<std::byte*>(got.data()));
    expect(got == values, "all of it");
  });
}

ddp_case(the_next_block_is_copied_while_one_is_used) {
  on_device([](const gpu::Device& device) {
    GpuArray array(0, 4 * kBlock);
    array.poke(pattern(4 * kBlock, 4));
    gpu::Transfer transfer(&device);
    int64_t seen = 0;
    fake_gpu::clear_log();
    transfer.read(on_gpu(array, device), 0, array.bytes(), [&](const std::byte*, int64_t) {
      ++seen;
      expect_equal(fake_gpu::calls("copy"), std::min<int64_t>(seen + 1, 4), "copies that were asked for");
    });
    expect_equal(seen, int64_t{4}, "blocks");
  });
}

ddp_case(a_block_is_not_filled_again_before_it_was_copied) {
  on_device([](const gpu::Device& device) {
    GpuArray array(0, 6 * kBlock);
    const std::vector<uint8_t> values = pattern(6 * kBlock, 6);
    gpu::Transfer transfer(&device);
    std::atomic<int> filled{0};
    fake_gpu::pause(transfer.stream());
    std::thread writer([&] {
      int64_t at = 0;
      transfer.write(on_gpu(array, device), 0, array.bytes(), [&](std::byte* to, int64_t bytes) {
        std::memcpy(to, values.data() + at, static_cast<size_t>(bytes));
        at += bytes;
        ++filled;
      });
      transfer.finish();
    });
    while (filled < 2) std::this_thread::yield();
    fake_gpu::resume(transfer.stream());
    writer.join();
    expect(array.peek<uint8_t>() == values, "every block arrived");
  });
}

ddp_case(host_memory_is_used_where_it_lies) {
  std::vector<uint8_t> values = pattern(2 * kBlock, 5);
  const Tensor tensor = flat_tensor(values.data(), DDP_U8, 2 * kBlock);
  gpu::Transfer transfer(nullptr);
  const std::byte* at = tensor.data;
  transfer.read(tensor, 0, tensor.bytes(), [&](const std::byte* data, int64_t bytes) {
    expect(data == at, "no copy");
    at += bytes;
  });
  transfer.write(tensor, 100, 1, [&](std::byte* data, int64_t) { expect(data == tensor.data + 100, "no copy"); });
  transfer.finish();
  expect(transfer.stream() == nullptr, "no stream");
}

ddp_case(any_call_may_fail_and_nothing_is_left) {
  const FakeGpus gpus;
  for (const char* function :
       {"stream_create", "host_alloc", "event_create", "copy", "event_record", "event_synchronize", "stream_synchronize"})
    for (int64_t nth = 1; nth <= 5; ++nth) {
      FakeGpus::expect_nothing_left();
      const gpu::Device device(fake_gpu::table(), 0, "rank 0");
      GpuArray array(0, 3 * kBlock);
      fake_gpu::Fault fault;
      fault.function = function;
      fault.nth = nth;
      fake_gpu::inject(fault);
      fake_gpu::clear_log();
      bool failed = false;
      std::string text;
      const auto body = [&] {
        gpu::Transfer transfer(&device);
        std::vector<std::byte> host(static_cast<size_t>(array.bytes()));
        transfer.write_from(on_gpu(array, device), 0, array.bytes(), host.data());
        transfer.finish();
        transfer.read_to(on_gpu(array, device), 0, array.bytes(), host.data());
      };
      const bool due = [&] {
        try {
          body();
        } catch (const Error& error) {
          failed = true;
          text = error.text();
        }
        return fake_gpu::calls(function) >= nth;
      }();
      fake_gpu::clear_faults();
      const bool only_at_the_end =
          std::string(function) == "stream_synchronize" && nth == 2;  // in the destructor, after all was done
      expect(failed == (due && !only_at_the_end), std::string(function) + " " + std::to_string(nth));
      if (failed) expect_contains(text, "GPU 0");
    }
  FakeGpus::expect_correct();
}

ddp_case(shared_memory_is_handed_on_in_the_order_of_the_streams) {
  on_device([](const gpu::Device& device) {
    gpu::Scratch scratch(device);
    const GpuStream first(0), second(0);
    GpuArray source(0, 4096), target(0, 4096);
    for (int round = 0; round < 20; ++round) {
      const std::vector<uint8_t> values = pattern(4096, static_cast<unsigned>(round));
      source.poke(values);
      {
        gpu::Scratch::Use use = scratch.take(4096, first.get());
        device.copy(use.data(), source.data(), 4096, first.get());
        device.copy(target.data(), use.data(), 4096, first.get());
        use.done();
      }
      {
        gpu::Scratch::Use use = scratch.take(100, second.get());
        device.zero(use.data(), 100, second.get());
        if (round % 2 == 0) use.done();  // else as after an exception
      }
      device.synchronize();
      expect(target.peek<uint8_t>() == values, "the second use waited for the first");
    }
  });
}

ddp_case(shared_memory_grows_and_does_not_wait_otherwise) {
  on_device([](const gpu::Device& device) {
    gpu::Scratch scratch(device);
    const GpuStream stream(0);
    scratch.take(1000, stream.get()).done();
    fake_gpu::clear_log();
    for (int round = 0; round < 10; ++round) scratch.take(200'000, stream.get()).done();
    expect_equal(fake_gpu::allocations(), int64_t{0}, "allocations of small uses");
    expect_equal(fake_gpu::host_waits(), int64_t{0}, "waits of small uses");
    scratch.take(1 << 20, stream.get()).done();
    expect_equal(fake_gpu::allocations(), int64_t{1}, "allocations of a large one");
    fake_gpu::Fault fault;
    fault.function = "alloc";
    fault.kind = DDP_GPU_OUT_OF_MEMORY;
    fake_gpu::inject(fault);
    (void)expect_error(DDP_ERROR_OUT_OF_MEMORY, [&] { scratch.take(4 << 20, stream.get()).done(); });
    scratch.take(4 << 20, stream.get()).done();  // once there is memory again
  });
}
