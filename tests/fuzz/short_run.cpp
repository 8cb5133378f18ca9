// A fuzz run without libFuzzer: any compiler builds it, and it needs no instrumented runtime.
//   ccl.fuzz.NAME SECONDS [RANDOM_SEED]
// Reads the seeds, then changed seeds, for SECONDS. A run with the same number repeats the inputs.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <random>

#include "fuzz/fuzz.hpp"
#include <unistd.h>

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments);
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "abort_on_error=1";
}

namespace {

using Bytes = std::string;

Bytes input;  // the present one, for `print_input`

void print_input(int signal) {
  std::fprintf(stderr, "the input, %zu bytes:\n", input.size());
  for (const char c : input) std::fprintf(stderr, "%02x", unsigned(static_cast<unsigned char>(c)));
  std::fprintf(stderr, "\n");
  ::_exit(128 + signal);
}

class Changer {
 public:
  Changer(const std::vector<Bytes>& seeds, unsigned number) : seeds_{seeds}, random_{number} {}

  Bytes next() {
    Bytes out = seeds_[below(seeds_.size())];
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(out);
    return out;
  }

 private:
  std::size_t below(std::size_t end) {
    return std::uniform_int_distribution<std::size_t>{0, end - 1}(random_);
  }
  void change(Bytes& bytes) {
    const std::size_t at = below(bytes.size() + 1);
    const std::size_t length = below(std::min<std::size_t>(bytes.size() - at, 64) + 1);
    switch (below(6)) {
      case 0:
        return overwrite_number(bytes, at);
      case 1:
        if (at < bytes.size()) bytes[at] = char(bytes[at] ^ 1 << below(8));
        return;
      case 2:
        bytes.erase(at, length);
        return;
      case 3:
        bytes.insert(at, bytes.substr(at, length));
        return;
      case 4:
        bytes.resize(at);
        return;
      default:
        const Bytes& other = seeds_[below(seeds_.size())];
        bytes = bytes.substr(0, at) + other.substr(below(other.size() + 1));
    }
  }
  void overwrite_number(Bytes& bytes, std::size_t at) {
    constexpr std::uint64_t extremes[] = {0,
                                          1,
                                          2,
                                          0x7f,
                                          0x80,
                                          0xff,
                                          0x7fff,
                                          0x8000,
                                          0xffff,
                                          0x7fffffff,
                                          0x80000000,
                                          0xffffffff,
                                          ~0ull >> 1,
                                          1ull << 63,
                                          ~0ull,
                                          1ull << 20,
                                          (1ull << 26) + 1};
    const std::uint64_t number = extremes[below(std::size(extremes))];
    const std::size_t size = std::size_t{1} << below(4);
    if (at + size > bytes.size()) return;
    std::memcpy(bytes.data() + at, &number, size);
  }

  const std::vector<Bytes>& seeds_;
  std::mt19937 random_;
};

void read_input() {
  ccl::fuzz::read(std::as_bytes(std::span{input.data(), input.size()}));
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: %s SECONDS [RANDOM_SEED]\n", arguments[0]);
    return 2;
  }
  const std::chrono::duration<double> length{std::atof(arguments[1])};
  const unsigned number = count > 2 ? unsigned(std::atoi(arguments[2])) : 1;
  LLVMFuzzerInitialize(&count, &arguments);
  ::signal(SIGABRT, print_input);
  const std::vector<Bytes> seeds = ccl::fuzz::seeds();
  for (const Bytes& seed : seeds) {
    input = seed;
    read_input();
  }
  Changer changer{seeds, number};
  long inputs = 0;
  for (const auto start = std::chrono::steady_clock::now();
       std::chrono::steady_clock::now() - start < length; ++inputs) {
    input = changer.next();
    read_input();
  }
  std::printf("%zu seeds and %ld changed ones\n", seeds.size(), inputs);
  return 0;
}
