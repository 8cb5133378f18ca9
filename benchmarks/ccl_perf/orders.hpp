#pragma once

#include <string_view>

#include "side.hpp"

namespace ccl::perf {

/// Order for a rank. Orders and replies are trivially copyable, because they are sent through
/// sockets.
struct Order {
  enum class Verb {
    invite,   // rank 0 only
    join,     // a GPU, a communicator, buffers
    prepare,  // one case: a checked call, and the graph
    time,     // one measurement of the case
    finish,   // check the case again
    explain,  // times of the phases of the case
    leave
  } verb = Verb::leave;
  Invitation invitation{};
  DataType type = DataType::float32;
  RedOp redop = RedOp::sum;
  Index bytes = 0;
  char algo[40] = {}, proto[24] = {};
  int calls = 1;    // calls of one sample; with a graph, calls in the graph
  int warm = 0;     // samples before that are not counted
  int samples = 1;  // samples that are counted, at most `Reply::max_samples`
};

struct Reply {
  static constexpr int max_samples = 32;
  bool ok = false;
  Errc code = Errc::internal;
  char text[700] = {};  // description of the error
  int os_code = 0, peer = -1;
  Invitation invitation{};
  double seconds = 0;      // join: of the communicator; prepare: of composition and first call
  double call_s = 0;       // prepare: approximate seconds of one call
  Index memory_bytes = 0;  // GPU memory of the communicator, or of the first call of a case
  Index wrong = 0;         // wrong elements
  char label[48] = {}, note[160] = {};
  Plan plan;
  char path[16] = {};  // prepare with --tune; see `TuningCase`
  int compute_capability = 0, hosts = 1;
  RankPhases phases{};               // explain
  double us[max_samples] = {};       // microseconds of one call by the GPU's clock
  double wall_us[max_samples] = {};  // microseconds of one call by the CPU's clock; 0 with a graph
};
static_assert(std::is_trivially_copyable_v<Order> && std::is_trivially_copyable_v<Reply>);

template <std::size_t N>
void put(char (&field)[N], std::string_view text) {
  field[text.copy(field, N - 1)] = 0;
}

/// Send or receive one whole message. Fail if the other end is closed.
Result<void> send_message(int socket, const void* data, std::size_t bytes);
Result<void> receive_message(int socket, void* data, std::size_t bytes);

}  // namespace ccl::perf
