// Fused through the public interface on CPU ranks: the result of one rank, and the refused calls.
#include <ccl/collective/all_reduce.hpp>
#include <ccl/collective/fused.hpp>
#include <ccl/epilogue/add_rms_norm.hpp>
#include <ccl/epilogue/plain_rows.hpp>
#include <ccl/proto/ll128.hpp>

#include <cmath>
#include <vector>

#include "support/catch.hpp"

using namespace ccl;

namespace {
template <class Algo, class Before = AsIs<float>>
using Norm = Fused<Before, Collective<AllReduce, Algo, LL128, DefaultTransport>, AddRmsNorm<float>>;

Communicator alone() {
  Config config;
  config.device = Config::cpu;
  auto comms = Communicator::create_all(1, config);
  REQUIRE(comms);
  return comms->front();
}
}  // namespace

TEST_CASE("one CPU rank adds the residual and normalizes its rows") {
  const auto comm = alone();
  const auto norm = Norm<TwoShot>::create(comm);
  REQUIRE(norm);
  constexpr int rows = 3, length = 1000;
  alignas(16) static float in[rows * length], residual[rows * length], out[rows * length];
  std::vector<double> want(rows * length);
  for (int i = 0; i < rows * length; ++i) in[i] = float(i % 17) - 8, residual[i] = float(i % 5);
  for (int row = 0; row < rows; ++row) {
    double squares = 0;
    for (int i = row * length; i < (row + 1) * length; ++i) {
      want[i] = double(in[i]) + residual[i];
      squares += want[i] * want[i];
    }
    for (int i = row * length; i < (row + 1) * length; ++i) {
      want[i] /= std::sqrt(squares / length + 1e-6);
    }
  }
  REQUIRE((*norm)(in, rows, length, {residual, residual, out}));
  for (int i = 0; i < rows * length; ++i) {
    REQUIRE(out[i] == Approx(want[i]).epsilon(1e-5));
    REQUIRE(residual[i] == float(i % 17) - 8 + float(i % 5));
  }
  alignas(16) static float same[rows * length];
  REQUIRE((*norm)(in, rows, length, {nullptr, nullptr, same}));
  HostStream stream;
  std::vector<float> first(out, out + rows * length);
  REQUIRE((*norm)(in, rows, length, {nullptr, nullptr, out}, stream));
  REQUIRE(stream.synchronize());
  REQUIRE(out[1] != first[1]);
  REQUIRE(out[1] == same[1]);
}

TEST_CASE("arguments of Fused that cannot be run are refused with a reason") {
  const auto comm = alone();
  const auto norm = Norm<OneShot>::create(comm);
  REQUIRE(norm);
  alignas(16) static float in[64], out[64];
  const auto text = [&](Index rows, Index length, const float* input) {
    const auto done = (*norm)(input, rows, length, {nullptr, nullptr, out});
    return done ? std::string{} : done.error().message();
  };
  REQUIRE(text(1, 12, in).find("multiple of 8 elements") != std::string::npos);
  REQUIRE(text(1, 8, in + 1).find("aligned to 16 bytes") != std::string::npos);
  REQUIRE(text(1, 1 << 20, in).find("cannot hold a row of 1048576") != std::string::npos);
  const std::string huge = text(1, Index{1} << 32, in);
  REQUIRE(huge.find("cannot hold a row of 4294967296") != std::string::npos);
  REQUIRE(huge.find("the most is 0") == std::string::npos);
  const auto unaligned = (*norm)(in + 1, 1, 8, {nullptr, nullptr, out});
  REQUIRE(unaligned.error().rank == 0);
  const auto skewed = (*norm)(in, 1, 8, {nullptr, nullptr, out, in + 1});
  REQUIRE(!skewed);
  REQUIRE(skewed.error().message().find("an epilogue with a buffer") != std::string::npos);
  REQUIRE(text(-1, 8, in) != "");
  REQUIRE(text(0, 8, in) == "");
  REQUIRE(text(8, 8, in) == "");
}
