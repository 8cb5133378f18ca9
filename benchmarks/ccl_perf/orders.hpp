#pragma once

#include <string_view>

#include "side.hpp"

namespace ccl::perf {

/// What a rank is told to do next. Trivially copyable, as the reply: they travel through sockets.
struct Order {
  enum class Verb {
    invite,   // rank 0 only
    join,     // a GPU, a communicator, buffers
    prepare,  // one case: a checked call, and the graph
    time,     // one measurement of it
    finish,   // check it again
    leave
  } verb = Verb::leave;
  Invitation invitation{};
  DataType type = DataType::float32;
  RedOp redop = RedOp::sum;
  Index bytes = 0;
  char algo[40] = {}, proto[24] = {};
  int calls = 1;    // on one clock; with a graph: those in it
  int warm = 0;     // clocks that do not count, first
  int samples = 1;  // clocks that do, at most `Reply::max_samples`
};

struct Reply {
  static constexpr int max_samples = 32;
  bool ok = false;
  Errc code = Errc::internal;
  char text[700] = {};  // what is wrong
  int os_code = 0, peer = -1;
  Invitation invitation{};
  double seconds = 0;      // of join: the communicator; of prepare: composition, first call
  double call_s = 0;       // of prepare: about how long one call takes
  Index memory_bytes = 0;  // of the GPU, taken by the communicator, or by a case's first call
  Index wrong = 0;         // elements
  char label[48] = {}, note[160] = {};
  Plan plan;
  char path[16] = {};  // of prepare, with --tune: see `TuningCase`
  int compute_capability = 0, hosts = 1;
  double us[max_samples] = {};       // of one call, by the GPU's clock
  double wall_us[max_samples] = {};  // of one call, by the CPU's; 0 with a graph
};
static_assert(std::is_trivially_copyable_v<Order> && std::is_trivially_copyable_v<Reply>);

template <std::size_t N>
void put(char (&field)[N], std::string_view text) {
  field[text.copy(field, N - 1)] = 0;
}

/// All of a socket's next message, or an error where the other end is gone.
Result<void> send_message(int socket, const void* data, std::size_t bytes);
Result<void> receive_message(int socket, void* data, std::size_t bytes);

}  // namespace ccl::perf
