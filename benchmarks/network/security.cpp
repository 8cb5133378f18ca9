// Cost of the protection of connections, as medians of rounds in which the variants take turns:
//   - a handshake by HMAC and by password-authenticated exchange,
//   - start-up of N ranks, threads of this process, with each CCL_ENCRYPTION and kind of secret,
//   - bandwidth between two ranks over TCP with each CCL_ENCRYPTION.
//
//   ccl_security [--rounds N] [--ranks N] [--bytes N]
#include <ccl/algo/pairwise.hpp>
#include <ccl/algo/tree.hpp>
#include <ccl/collective.hpp>
#include <ccl/proto/simple.hpp>
#include <ccl/transport/socket.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "net/auth.hpp"
#include "net/crypto/encryption.hpp"
#include "net/crypto/secret.hpp"
#include "net/crypto/sodium.hpp"

namespace {

namespace net = ccl::detail::net;
using Messages = ccl::Collective<ccl::SendRecv, ccl::Pairwise, ccl::Simple, ccl::SocketTransport>;
using Sums = ccl::Collective<ccl::AllReduce, ccl::Tree, ccl::Simple, ccl::SocketTransport>;

struct Options {
  int rounds = 5;
  int ranks = 64;
  ccl::Index bytes = ccl::Index{64} << 20;
};

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}
void use(const char* encryption) {
  ::setenv("CCL_ENCRYPTION", encryption, 1);
}

/// Runs `body(rank)` on one thread for each rank. Returns seconds, or a negative value on failure.
template <class Body>
double on_ranks(int ranks, const Body& body) {
  std::vector<ccl::Result<void>> results(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  const double began = now_s();
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] { results[std::size_t(r)] = body(r); });
  }
  for (auto& thread : threads) thread.join();
  const double took = now_s() - began;
  for (const auto& result : results) {
    if (result) continue;
    std::fprintf(stderr, "%s\n", result.error().message().c_str());
    return -1;
  }
  return took;
}

/// Microseconds of a handshake of both ends, which share the machine.
double handshake_us(const net::Secret& secret) {
  constexpr int count = 200;
  auto listener = net::AuthListener::listen(net::Address::parse("127.0.0.1:0").value(), secret);
  if (!listener) return -1;
  const auto deadline = net::Deadline::after(30);
  const double began = now_s();
  for (int n = 0; n < count; ++n) {
    const auto caller = net::auth_connect(listener->address(), secret, {}, deadline, nullptr);
    if (!caller || !listener->accept(deadline, nullptr)) return -1;
  }
  return (now_s() - began) / count * 1e6;
}

/// Seconds until all ranks have joined and passed a barrier.
double start_up_s(int ranks, bool guessable) {
  static int next_port = 30000 + int(now_s() * 1000) % 20000;
  auto id = ccl::create_unique_id();
  if (guessable) {
    id = ccl::unique_id_at("127.0.0.1:" + std::to_string(next_port++), "start-up");
    if (!id || !ccl::start_root(*id, 0)) return -1;
  }
  if (!id) return -1;
  return on_ranks(ranks, [&](int rank) -> ccl::Result<void> {
    CCL_TRY(const auto comm, ccl::Communicator::create(*id, rank, ranks));
    CCL_CHECK(comm.barrier());
    return comm.finalize();
  });
}

/// GB/s of messages from rank 0 to rank 1, and of all-reduces, in bytes of the buffer.
std::array<double, 2> bandwidth(ccl::Index bytes) {
  const auto id = ccl::create_unique_id();
  if (!id) return {-1, -1};
  std::array<double, 2> seconds{};
  constexpr int calls = 4;
  const double all = on_ranks(2, [&](int rank) -> ccl::Result<void> {
    CCL_TRY(const auto comm, ccl::Communicator::create(*id, rank, 2));
    CCL_TRY(const auto messages, Messages::create(comm));
    CCL_TRY(const auto sums, Sums::create(comm));
    std::vector<float> data(std::size_t(bytes) / sizeof(float), 1.0f), other(data.size());
    const auto count = ccl::Index(data.size());
    const ccl::Index sends = rank == 0 ? count : 0, receives = rank == 1 ? count : 0;
    for (int n = -1; n < calls; ++n) {
      if (n == 0) CCL_CHECK(comm.barrier());
      const double began = now_s();
      CCL_CHECK(messages(data.data(), sends, 1 - rank, other.data(), receives, 1 - rank));
      CCL_CHECK(comm.barrier());
      if (n >= 0 && rank == 1) seconds[0] += now_s() - began;
    }
    for (int n = -1; n < calls; ++n) {
      const double began = now_s();
      CCL_CHECK(sums(data.data(), other.data(), count, ccl::Sum{}));
      if (n >= 0 && rank == 1) seconds[1] += now_s() - began;
    }
    return comm.finalize();
  });
  if (all < 0) return {-1, -1};
  return {double(bytes) * calls / seconds[0] / 1e9, double(bytes) * calls / seconds[1] / 1e9};
}

using Samples = std::map<std::string, std::vector<double>>;

bool good(const Samples& samples) {
  for (const auto& [name, values] : samples) {
    if (std::any_of(values.begin(), values.end(), [](double v) { return v <= 0; })) return false;
  }
  return true;
}

bool measure(const Options& options) {
  const char* const kinds[] = {"off", "integrity", "full"};
  Samples handshakes, starts, messages, sums;
  for (int round = 0; round < options.rounds; ++round) {
    use("off");
    handshakes["hmac"].push_back(handshake_us(net::random_secret()));
    handshakes["exchange"].push_back(handshake_us(net::secret_of_words("public words")));
    for (const char* const kind : kinds) {
      use(kind);
      starts[std::string{"secret, "} + kind].push_back(start_up_s(options.ranks, false));
      starts[std::string{"words, "} + kind].push_back(start_up_s(options.ranks, true));
      const auto [of_messages, of_sums] = bandwidth(options.bytes);
      messages[kind].push_back(of_messages);
      sums[kind].push_back(of_sums);
    }
  }
  for (const auto& [name, values] : handshakes) {
    std::printf("handshake by %s: %.0f us\n", name.c_str(), median(values));
  }
  const double base_s = median(starts["secret, off"]);
  for (const auto& [name, values] : starts) {
    std::printf("start-up of %d ranks, %s: %.3f s (%.2f)\n", options.ranks, name.c_str(),
                median(values), median(values) / base_s);
  }
  for (const char* const kind : kinds) {
    std::printf("%lld MiB, %s: send %.2f GB/s (%.2f), all_reduce %.2f GB/s (%.2f)\n",
                static_cast<long long>(options.bytes >> 20), kind, median(messages[kind]),
                median(messages[kind]) / median(messages["off"]), median(sums[kind]),
                median(sums[kind]) / median(sums["off"]));
  }
  return good(handshakes) && good(starts) && good(messages) && good(sums);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view word = argv[i];
    if (word == "--rounds") options.rounds = std::atoi(argv[i + 1]);
    if (word == "--ranks") options.ranks = std::atoi(argv[i + 1]);
    if (word == "--bytes") options.bytes = std::atoll(argv[i + 1]);
  }
  if (!net::has_sodium()) {
    std::printf("SKIP: %s\n", net::sodium_problem());
    return 0;
  }
  std::printf("records by %s\n", net::has_aes() ? "AES-256-GCM" : "ChaCha20-Poly1305");
  return measure(options) ? 0 : 1;
}
